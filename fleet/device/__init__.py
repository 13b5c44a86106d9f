"""The programs that run on a board, in shell, PowerShell and Python, and the code that finds them.

`sh/` is POSIX shell, `powershell/` is for Windows. `store/` keeps blobs and releases in Python;
`windows/` does the same work without a POSIX shell. `npu/` opens NPU sessions, `server/` is a model
as a service. docs/device-programs.md lists each with its caller, input, answer and oldest
interpreter.
"""
