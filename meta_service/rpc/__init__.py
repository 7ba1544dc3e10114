"""The gRPC faces of the cluster manager: messages in, events of the machine out."""
