"""Boards worked on by the workers of a dask.distributed cluster, see docs/cluster.md.

On the workstation: `connecting` → `executor` → `remote_job` (one piece of work) with `broadcast`
and `result_collection`. On a worker: `worker` → `remote_builder`, `publisher`, `blobs`. Between
them: `wire`. Only `executor` and `worker` import distributed, when they are used.
"""
