"""Everything that runs on a board: shell, PowerShell and Python programs, and how they are found.

`sh/` POSIX shell, `powershell/` Windows' own, `store/` blobs and releases in Python, `windows/` the
same work where no POSIX shell is, `npu/` what opens an NPU session, `server/` a model as a service.
docs/device-programs.md lists each with its caller, input, answer and oldest interpreter.
"""
