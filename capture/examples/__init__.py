"""Programs to start from; each one runs on Neuron, CUDA and CPU."""
