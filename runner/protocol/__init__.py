"""What the bridge, the engine process and their clients agree on: frames, tensors, an engine's interface."""
