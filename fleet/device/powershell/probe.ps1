# All facts of a Windows device in one go; runs inside bootstrap.ps1, which brings
# Find-Python. $base: base folder, "" for the default. Windows PowerShell 5.1, nothing to install.
# Output: `key<TAB>value`, newlines as \037. Not asked: wmic (gone in 24H2), Get-PnpDeviceProperty (wakes
# the DSP for minutes), Win32_SystemDriver (hangs). Reads only, but for one empty file of its own.
param($base)
$ErrorActionPreference = 'SilentlyContinue'
$text = New-Object Text.StringBuilder
function Say($key, $value) {
  if ("$value" -eq '') { return }
  $line = ("$value" -replace "`r", '') -replace "`n", [string][char]31
  [void]$text.Append($key).Append("`t").Append($line).Append("`n")
}
function Reg($path, $name) { (Get-ItemProperty -LiteralPath "HKLM:\$path" -Name $name).$name }
[void]$text.Append("`nfleet-facts 1`n")
Say 'hostname' $env:COMPUTERNAME
Say 'os_id' 'windows'
$nt = 'SOFTWARE\Microsoft\Windows NT\CurrentVersion'
$os = Get-CimInstance Win32_OperatingSystem
Say 'os_name' $os.Caption
Say 'os_version' $os.Version
Say 'kernel' "$($os.Version).$(Reg $nt 'UBR')"
# That of the machine, not of this process: an emulated one says AMD64. 12 is ARM64.
$cpu = @(Get-CimInstance Win32_Processor)[0]
$machines = @{ 0 = 'x86'; 5 = 'arm'; 9 = 'amd64'; 12 = 'arm64' }
Say 'machine' $machines[[int]$cpu.Architecture]
Say 'process_machine' "$env:PROCESSOR_ARCHITECTURE".ToLower()
Say 'processor' (Reg 'HARDWARE\DESCRIPTION\System\CentralProcessor\0' 'ProcessorNameString')
Say 'dt_model' (Get-CimInstance Win32_ComputerSystem).Model
Say 'serial_number' (Get-CimInstance Win32_BIOS).SerialNumber
$memory = 'SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters'
$boot = Reg $memory 'BootId'
if ($null -ne $boot) { Say 'boot_id' "boot-$boot" }
Say 'machine_id' (Reg 'SOFTWARE\Microsoft\Cryptography' 'MachineGuid')
Say 'uptime' ([long]([Diagnostics.Stopwatch]::GetTimestamp() / [Diagnostics.Stopwatch]::Frequency))
Say 'mem_total_kb' $os.TotalVisibleMemorySize
Say 'mem_available_kb' $os.FreePhysicalMemory
Say 'win_user' $env:USERNAME
$homes = $env:USERPROFILE -replace '\\', '/'
Say 'home' $homes
Say 'powershell' $PSVersionTable.PSVersion
Say 'language_mode' $ExecutionContext.SessionState.LanguageMode
Say 'execution_policy' (Get-ExecutionPolicy)
Say 'default_shell' (Reg 'SOFTWARE\OpenSSH' 'DefaultShell')
# The driver's folder: of qcnspmcdm where its FastRPCEnabledDSPInfo is set, else of qcadsprpc
# (onnxruntime-qnn, htp_usr_drv_utils.cc). The INF's four digits name the chip.
$folder = ''
$services = 'HKLM:\SYSTEM\CurrentControlSet\Services'
foreach ($name in @(Get-ChildItem $services -Name)) {
  if ($name -notlike 'qcnspmcdm*' -and $name -notlike 'qcadsprpc*') { continue }
  $key = Get-Item -LiteralPath "$services\$name"
  $image = "$($key.GetValue('ImagePath'))" -replace '^\\SystemRoot', $env:SystemRoot
  Say 'npu_service' "$name`t$image"
  $info = Get-ItemProperty -LiteralPath $key.PSPath -Name FastRPCEnabledDSPInfo
  if ($name -like 'qcnspmcdm*' -and $info) { $folder = Split-Path $image }
  elseif (-not $folder -and $name -like 'qcadsprpc*') { $folder = Split-Path $image }
}
if ($folder) {
  Say 'npu_folder' $folder
  foreach ($file in @(Get-ChildItem (Join-Path $folder 'HTP') -File)) {
    if ($file.Name -match '^(HtpUsrDrv\.dll|QnnHtp.*Drv\.dll|libQnnHtp.*Drv\.so|libqnnhtp.*\.cat)$') {
      Say 'npu_file' "$($file.Name)`t$($file.VersionInfo.FileVersion)"
    }
  }
}
foreach ($dir in "$env:PATH".Split(';')) {
  foreach ($name in 'QnnHtp.dll', 'QnnSystem.dll', 'Genie.dll') {
    $file = "$dir\$name"
    if ($dir -and (Test-Path -LiteralPath $file)) { Say 'qnn_library' ($file -replace '\\+', '/') }
  }
}
$python = Find-Python
if ($python) {
  $said = & $python -I -S -c "import sys,sysconfig,importlib.util as u;print('%d.%d.%d' % sys.version_info[:3], sysconfig.get_platform(), u.find_spec('_ctypes') is not None)"
  $words = "$said".Split(' ')
  Say 'python3' "$($python -replace '\\', '/') $($words[0])"
  Say 'python3_platform' $words[1]
  Say 'python3_ctypes' $(if ($words[2] -eq 'True') { 'yes' } else { 'no' })
  Say 'sha256' 'python'
  Say 'dd_fullblock' 'yes'
  Say 'sync_file' 'yes'
}
$base = $base -replace '\\', '/'
if (-not $base) { $base = "$homes/fleet" }
elseif ($base -like '~/*') { $base = $homes + $base.Substring(1) }
elseif ($base -notmatch '^[A-Za-z]:/') { $base = "$homes/$($base.TrimStart('/'))" }
Say 'base_dir' $base
Say 'store' $(if (Test-Path -LiteralPath "$base/store" -PathType Container) { 'yes' } else { 'no' })
$parent = $base
while ($parent -match '/' -and -not (Test-Path -LiteralPath $parent -PathType Container)) {
  $parent = $parent.Substring(0, $parent.LastIndexOf('/'))
}
$drive = New-Object IO.DriveInfo ($base.Substring(0, 1))
Say 'disk_mount' $drive.Name
Say 'filesystem' $drive.DriveFormat
Say 'disk_free_kb' ([long]($drive.AvailableFreeSpace / 1024))
$mark = "$parent/.fleet-probe-$PID"
try {
  [IO.File]::Open($mark, 'CreateNew').Close(); [IO.File]::Delete($mark)
  Say 'disk_writable' 'yes'
} catch { Say 'disk_writable' 'no' }
[void]$text.Append("end`n")
$bytes = (New-Object Text.UTF8Encoding $false).GetBytes($text.ToString())
$out = [Console]::OpenStandardOutput(); $out.Write($bytes, 0, $bytes.Length); $out.Flush()
