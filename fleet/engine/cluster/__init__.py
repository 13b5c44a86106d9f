"""Work on boards by the workers of a dask.distributed cluster; see docs/cluster.md.

On the workstation: `connecting` → `fanout` → `remote_job` (one piece of work) with `broadcast`. On
a worker: `worker` → `publisher`, `blobs`. Between them: `wire`. Only `connecting` and `worker`
import distributed.
"""
