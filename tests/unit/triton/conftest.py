"""A real gRPC server (grpcio's) whose answers the test decides."""

from __future__ import annotations

from concurrent import futures

import grpc
import pytest

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.fixture
def serve():
    """`serve(answer)`: the port of a server that answers calls with `answer(request bytes, context)`."""
    servers = []

    def start(answer) -> int:
        class Handler(grpc.GenericRpcHandler):
            def service(self, _details):
                return grpc.unary_stream_rpc_method_handler(answer)

        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Handler()], options=options)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return port

    yield start
    for server in servers:
        server.stop(None).wait()
