# What every command on a Windows device starts with: a constant, sent as -EncodedCommand.
# The work itself comes by standard input: `fleet1 NNNNNNNN` and a newline, so many bytes of UTF-8
# fields with NUL between them, then what is the program's own. Nothing of it is ever parsed as code,
# but for our own scripts (first field `script`).
#   run, folder, program, arguments, count of names to unset, names, then name and value in turn
#   script, text, arguments
# Status 97: standard input did not arrive. 126: no such folder. 127: no such program.
$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue'
function Fail([int]$n, $t) { [Console]::Error.WriteLine($t); exit $n }
$stdin = [Console]::OpenStandardInput()
function Take([int]$n) {
  $b = New-Object byte[] $n; $at = 0
  while ($at -lt $n) { $k = $stdin.Read($b, $at, $n - $at); if ($k -le 0) { break }; $at += $k }
  if ($at -lt $n) {
    $shell = (Get-ItemProperty 'HKLM:\SOFTWARE\OpenSSH' -ErrorAction SilentlyContinue).DefaultShell
    Fail 97 "fleet-stdin-lost $shell"
  }
  return , $b
}
# A python.exe of the Microsoft Store is an alias that an ssh login cannot start.
function Find-Python {
  foreach ($c in @(Get-Command python.exe -All -CommandType Application -ErrorAction SilentlyContinue)) {
    if ($c.Path -notlike '*\Microsoft\WindowsApps\*') { return $c.Path }
  }
  foreach ($r in 'HKLM:\SOFTWARE\Python\PythonCore', 'HKCU:\SOFTWARE\Python\PythonCore') {
    foreach ($v in @(Get-ChildItem $r -ErrorAction SilentlyContinue)) {
      $p = (Get-ItemProperty ($v.PSPath + '\InstallPath') -ErrorAction SilentlyContinue).ExecutablePath
      if ($p -and (Test-Path -LiteralPath $p)) { return $p }
    }
  }
}
$head = [Text.Encoding]::ASCII.GetString((Take 16))
if ($head -notmatch '^fleet1 (\d{8})\n$') { Fail 97 'fleet-stdin-lost ?' }
$w = [Text.Encoding]::UTF8.GetString((Take ([int]$Matches[1]))).Split([char]0)
if ($w[0] -eq 'script') {
  $rest = @(); if ($w.Length -gt 2) { $rest = $w[2..($w.Length - 1)] }
  & ([ScriptBlock]::Create($w[1])) @rest
  exit 0
}
$s = New-Object Diagnostics.ProcessStartInfo
$s.FileName = $w[2]; $s.Arguments = $w[3]; $s.UseShellExecute = $false
if ($w[2] -eq 'python3') { $s.FileName = Find-Python; if (-not $s.FileName) { Fail 127 'fleet-no-python' } }
if ($w[1]) {
  if (-not (Test-Path -LiteralPath $w[1] -PathType Container)) { Fail 126 "no folder $($w[1])" }
  $s.WorkingDirectory = (Get-Item -LiteralPath $w[1]).FullName
}
$at = 5 + [int]$w[4]
for ($i = 5; $i -lt $at; $i++) { $s.EnvironmentVariables.Remove($w[$i]) }
for (; $at -lt $w.Length; $at += 2) { $s.EnvironmentVariables[$w[$at]] = $w[$at + 1] }
try { $p = [Diagnostics.Process]::Start($s) } catch { Fail 127 "cannot start $($s.FileName): $($_.Exception.Message)" }
$p.WaitForExit()
exit $p.ExitCode
