import subprocess
import sys

WITHOUT = """
import sys
import cli.preparation, runner.triton.model_repository
assert "numpy" not in sys.modules, "numpy takes long to import"
import tritonclient.grpc
from tritonclient.grpc import model_config_pb2
assert tritonclient.grpc.InferenceServerClient
assert model_config_pb2 is runner.triton.model_repository.model_config
"""
FRONT = """
import sys
import runner.front.__main__, runner.front.engine, runner.front.front, runner.triton.client
assert not {"grpc", "google.protobuf", "tritonclient"} & sys.modules.keys()
"""


def test_a_start_imports_no_numpy_and_tritonclient_stays_whole():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)


def test_the_front_knows_nothing_of_grpc():
    subprocess.run([sys.executable, "-c", FRONT], check=True)
