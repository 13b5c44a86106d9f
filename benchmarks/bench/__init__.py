"""Parts of benchmarks/transfer.py: fleet beside its peers on a lab board."""
