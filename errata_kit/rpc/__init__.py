"""gRPC, once for all services: the server and its interceptors, channels, statuses, and shared conversions."""

import os

# Read by gRPC once, when it is imported. Otherwise it writes a line that is no JSON for each handshake that it refuses.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
