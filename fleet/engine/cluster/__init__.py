"""Boards worked on by the workers of a dask.distributed cluster, see docs/cluster.md.

On the workstation: `connecting` → `executor` → `errand` (one piece of work) with `supply`,
`carousel` and `homecoming`. On a worker: `worker` → `bench`, `publisher`, `blobs`. Between
them: `wire`. Only `executor` and `worker` import distributed, when they are used.
"""
