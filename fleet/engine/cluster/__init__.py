"""Work on boards by the workers of a dask.distributed cluster; see docs/cluster.md.

On the workstation: `connecting` → `remote_job` (one piece of work). On
a worker: `worker` → `blobs`. Between them: `wire`. Only `connecting` and `worker`
import distributed.
"""
