# Python by its name, where the full probe would start it: that takes 10 ms and more.
text=$(command -v python3)
if [ -n "$text" ]; then
  found=''
  for f in "$text".[0-9] "$text".[0-9][0-9]; do if [ -x "$f" ]; then found="$found ${f##*/python}"; fi; done
  case $found in
    '' | ' '*' '*) found=$("$text" -ISc 'import hashlib, sys, threading; print("%s %d.%d.%d" % (sys.executable, *sys.version_info[:3]))' 2>/dev/null) ;;
    *)
      # Yocto has a core of Python without most of its library.
      f=${text%/bin/*}/lib/python${found# }
      if [ -d "$f" ] && { [ ! -e "$f/hashlib.py" ] || [ ! -e "$f/threading.py" ]; }; then say python3_whole no; fi
      found="$text$found" ;;
  esac
  say python3 "$found"
fi
