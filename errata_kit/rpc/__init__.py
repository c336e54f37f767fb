"""gRPC, once for all services: the server and its interceptors, channels, statuses, and shared conversions."""
