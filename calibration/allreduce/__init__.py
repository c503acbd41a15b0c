"""Measured all-reduces: nccl-tests output and plain tables to curves, forms and `allreduce.json`."""
