import subprocess
import sys

WITHOUT = """
import sys
import cli.preparation, runner.triton.client
assert "numpy" not in sys.modules, "numpy takes long to import"
import tritonclient.grpc
from tritonclient.grpc import service_pb2
assert tritonclient.grpc.InferenceServerClient
assert service_pb2 is runner.triton.client.service_pb2
"""


def test_a_start_imports_no_numpy_and_tritonclient_stays_whole():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)
