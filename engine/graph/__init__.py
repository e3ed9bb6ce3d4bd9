"""The compute graph: tensors, operations and the interface that architectures build through."""
