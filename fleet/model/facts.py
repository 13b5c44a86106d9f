"""The facts of a device. None means unknown, and nothing may be derived from it."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

# Folders in which libcdsprpc searches for a DSP shell, as far as the probe knows.
SHELL_FOLDERS = ("/usr/share/hexagon-dsp", "/usr/share/qcom", "/usr/lib/dsp", "/usr/lib/rfsa/adsp")


class Soc(Struct, frozen=True):
    """Identity of the chip.

    `kernel_soc_id` is the number in /sys/devices/soc0/soc_id (676), `soc_model` the one of QNN
    configs (77): two different number spaces. `hexagon_arch` is like `v73`. `source` is soc_id,
    device-tree, android (`Android.soc_model`), npu-driver or processor (`Windows`), inventory or
    unknown. `machine`, `family` and `revision` are the kernel's words in /sys/devices/soc0. `htp`
    is False if the chip has none, None if unknown. `covered` is True if a file is mounted over
    soc_id, so that the libraries see another chip.
    """

    kernel_soc_id: int | None = None
    machine: str | None = None
    compatible: tuple[str, ...] = ()
    model: str | None = None
    chip: str | None = None
    soc_model: int | None = None
    soc_model_candidates: tuple[int, ...] = ()
    hexagon_arch: str | None = None
    vtcm_mb: int | None = None
    source: str = "unknown"
    conflict: str = ""
    family: str | None = None
    revision: str | None = None
    htp: bool | None = None
    covered: bool = False


class User(Struct, frozen=True):
    """The deploy user.

    `groups_db` are its groups in the database, `groups_live` those of this login.
    """

    name: str | None = None
    uid: int | None = None
    home: str | None = None
    groups_db: tuple[str, ...] = ()
    groups_live: tuple[str, ...] = ()


class DeviceNode(Struct, frozen=True):
    """A device node and the result of a real open() by the deploy user.

    `open_error` is "" on success, else EACCES, ENOENT, ...; None if not tried. `mode` is octal text
    such as `660`.
    """

    path: str
    exists: bool
    mode: str | None = None
    owner: str | None = None
    group: str | None = None
    open_error: str | None = None


class Disk(Struct, frozen=True):
    """The disk of the releases. `available_bytes` and `inodes` are those for the deploy user.

    `recyclable_bytes` are in recyclable blobs, which are overwritten by new content.
    """

    path: str
    mount: str | None = None
    available_bytes: int | None = None
    inodes: int | None = None
    writable: bool | None = None
    recyclable_bytes: int = 0

    @property
    def room_bytes(self) -> int | None:
        """The bytes that can be sent there, None if unknown."""
        return (
            None if self.available_bytes is None else self.available_bytes + self.recyclable_bytes
        )


class ThermalZone(Struct, frozen=True):
    """A temperature sensor. `celsius` is None if it cannot be read."""

    name: str
    type: str
    celsius: float | None


class Tools(Struct, frozen=True):
    """The programs on the device. `sha256` is the argv of a hash tool, () if there is none.

    `python3_whole` is False if Python lacks hashlib or threading, as Yocto's core package does.
    `find_printf` is True for GNU find, `cpio` if a phone can unpack what it has packed.
    """

    python3: str | None = None
    python3_version: str | None = None
    python3_whole: bool = True
    python3_ctypes: bool | None = None
    sha256: tuple[str, ...] = ()
    timeout: bool = False
    dd_fullblock: bool = False
    find_printf: bool = False
    sync_file: bool = False
    tar: bool = False
    cpio: bool = False
    gzip: bool = False


class Battery(Struct, frozen=True):
    """The battery of a phone: percent, charging / discharging / full, a charger, degrees
    Celsius.
    """

    percent: int | None = None
    status: str | None = None
    charger: bool | None = None
    celsius: float | None = None


class Android(Struct, frozen=True):
    """The facts that only Android has, from its properties (named as in getprop).

    `soc_model` is ro.soc.model (Android 12) or ro.vendor.qti.soc_model, `platform` is
    ro.board.platform (pineapple). `selinux` is Enforcing or Permissive. `su` is True if a program
    of that name answers. `vendor_skels` are QNN skels of the firmware, which may be older.
    """

    release: str | None = None
    sdk: int | None = None
    security_patch: str | None = None
    fingerprint: str | None = None
    build_type: str | None = None
    abis: tuple[str, ...] = ()
    manufacturer: str | None = None
    model: str | None = None
    device: str | None = None
    soc_manufacturer: str | None = None
    soc_model: str | None = None
    platform: str | None = None
    serialno: str | None = None
    selinux: str | None = None
    su: bool = False
    vendor_skels: tuple[str, ...] = ()
    battery: Battery = Battery()


class Windows(Struct, frozen=True):
    """The facts that only Windows has.

    `processor` is ProcessorNameString of the registry. `services` are (name, image path) of the NPU
    driver. `driver_folder` contains the driver's own QNN, `driver_files` are the files in its HTP/
    with their versions. `inf_code` is the four digits of its INF (8380). `driver_qnn` is the
    version of HtpUsrDrv.dll, which is that of the driver's QNN. `python_machine` is arm64 or amd64
    (emulated). `default_shell` "" is cmd.exe.
    """

    processor: str | None = None
    services: tuple[tuple[str, str], ...] = ()
    driver_folder: str | None = None
    driver_files: tuple[tuple[str, str], ...] = ()
    inf_code: str | None = None
    driver_qnn: str | None = None
    python_machine: str | None = None
    process_machine: str | None = None
    filesystem: str | None = None
    powershell: str | None = None
    language_mode: str | None = None
    execution_policy: str | None = None
    default_shell: str = ""


class Facts(Struct, frozen=True):
    """The facts of one device, from one round trip.

    `dsp_shells` are files fastrpc_shell_*3 of the compute DSP in the folders that libcdsprpc
    searches. `local` is True if programs and libraries are those of this computer.
    """

    hostname: str | None = None
    os_id: str | None = None
    os_version: str | None = None
    os_name: str | None = None
    kernel: str | None = None
    machine: str | None = None
    libc: str | None = None
    libc_version: str | None = None
    boot_id: str | None = None
    machine_id: str | None = None
    serial_number: str | None = None
    uptime_s: float | None = None
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    soc: Soc = Soc()
    user: User = User()
    nodes: tuple[DeviceNode, ...] = ()
    libcdsprpc: tuple[str, ...] = ()
    libcdsprpc_unversioned: bool | None = None
    libatomic: bool | None = None
    libstdcpp: bool | None = None
    qnn_libraries: tuple[str, ...] = ()
    dsp_library_path: str | None = None
    dsp_shells: tuple[str, ...] | None = None
    base_dir: str = ""
    store: bool | None = None
    disk: Disk = Disk("")
    thermal: tuple[ThermalZone, ...] = ()
    remoteproc: tuple[tuple[str, str], ...] = ()
    tools: Tools = Tools()
    lab: bool = False
    local: bool = False
    android: Android | None = None
    windows: Windows | None = None
    PLAIN: ClassVar[str] = "* emulated"

    @property
    def posix(self) -> bool:
        """True if the device has a POSIX shell, which runs the scripts of fleet."""
        return self.windows is None

    @property
    def os_family(self) -> str:
        """The family of QAIRT builds that load there: `android` needs bionic, `linux` glibc."""
        if self.windows is not None:
            return "windows"
        return "android" if self.libc == "bionic" else "linux"

    @property
    def emulated(self) -> bool:
        """True if no Hexagon is possible: a lab board, or an x86_64 target.

        The x86_64 build of libQnnHtp is Qualcomm's HTP emulator (docs/sources/qairt.md 2), so its
        speed is never that of an NPU.
        """
        return self.lab or self.machine in {"x86_64", "amd64", "i686"}
