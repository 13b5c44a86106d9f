# Names replaced in one rename(2) or not at all; stands before the scripts that need it and before
# the doctor's probe, which tries it. Sources: docs/android.md.
# $1 gets the name $2, also where that is a link to a folder. The mv of toybox follows such a link,
# before 0.8.3 it has no -T; the shell of phones, mksh, has rename(2) as a builtin.
replace() {
  if rp_said=$(mv -f -T "$1" "$2" 2>&1); then return 0; fi
  if [ -n "${KSH_VERSION-}" ] && builtin rename "$1" "$2"; then return 0; fi
  echo "$rp_said" >&2
  return 1
}
# Points the link $1 to $2, by way of the new name $3. An ln is taken only if it keeps a link that
# it cannot replace: that of busybox removes first. What counts is where the link leads afterwards.
point() {
  if [ -L "$3" ] || [ -e "$3" ]; then rm -rf "$3"; fi
  ln -s "$2" "$3" || return 1
  if ! rp_why=$(replace "$3" "$1" 2>&1); then
    ln -s -f -n '' "$3" 2>/dev/null
    if [ -d "$1" ] && [ ! -L "$1" ] || [ ! -L "$3" ] || ! ln -s -f -n "$2" "$1"; then
      rm -f "$3"; echo "$rp_why" >&2
      echo "no tool here puts a link in the place of another in one rename" >&2
      return 1
    fi
    rm -f "$3"
  fi
  rp_now=$(readlink "$1")
  [ "$rp_now" = "$2" ] || { echo "$1 leads to $rp_now and not to $2" >&2; return 1; }
}
