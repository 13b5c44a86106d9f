# May the deploy user become root, and what would a package manager bring? Reads only.
# $1 "ask" to try sudo without a password; the rest: names for a simulated installation.
set -u
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/sbin:/sbin; export PATH
ask=$1
shift
echo "fleet-rights 1"
if [ "$(id -u)" = 0 ]; then echo "become root"
elif ! command -v sudo >/dev/null 2>&1; then echo "become none"
elif [ "$ask" != ask ]; then echo "become sudo"
elif sudo -n true >/dev/null 2>&1 </dev/null; then echo "become sudo"
else echo "become password"; fi
if [ $# -gt 0 ] && command -v apt-get >/dev/null 2>&1; then
  if said=$(apt-get -s -q -o Debug::NoLocking=1 install -- "$@" 2>&1); then
    printf '%s\n' "$said" | while read -r word name old _; do
      case $word in Inst) echo "brings $name" ;; Remv) echo "removes $name" ;; esac
      case $word,$old in Inst,\[*) old=${old#\[}; echo "replaces $name ${old%]}" ;; esac
    done
    # A simulation says no sizes; this one prints addresses and installs nothing.
    apt-get -y -q --print-uris -o Debug::NoLocking=1 install -- "$@" 2>/dev/null | while IFS= read -r line; do
      case $line in 'Need to get '* | 'After this operation, '*) echo "size ${line%.}" ;; esac
    done
  else
    printf '%s\n' "$said" | grep -E '^E:|Depends:|but it is not' | while IFS= read -r line; do echo "refuses $line"; done
    echo "simulated no"
  fi
fi
echo "end"
