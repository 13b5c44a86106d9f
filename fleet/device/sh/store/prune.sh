# Removes releases beyond the newest $3 (by history) and blobs that no release links to.
# $1 base, $2 name, $3 keep, $4 how many blobs the current one has, where that is known. The current, the previous and a served release always stay.
set -u
base=$1 name=$2 keep=$3 blobs=${4:-}
now=$(readlink "$base/current/$name"); now=${now##*/}
own=$base/meta/$name/$now
[ -d "$own" ] || own=$base/releases/$name/$now
if [ -z "$now" ] || [ ! -d "$base/releases/$name/$now" ] || [ ! -f "$own/manifest.json" ]; then
  echo "cannot tell which release is current; nothing was removed" >&2; exit 74
fi
newest=''
while read -r id; do
  case $id in '' | *[!0-9a-f]*) continue ;; esac
  [ -d "$base/releases/$name/$id" ] && newest="$id $newest"
done < "$base/history/$name"
stay=" $now "; count=1
served=''
if [ -L "$base/serve/$name/release" ]; then served=$(readlink "$base/serve/$name/release"); served=${served##*/}; fi
[ "$keep" -lt 2 ] && keep=2
for id in $newest; do
  case $stay in *" $id "*) continue ;; esac
  [ "$count" -ge "$keep" ] && break
  stay="$stay$id "; count=$((count + 1))
done
stay="$stay$served "
for rel in "$base/releases/$name"/* "$base/releases/$name"/.stage-*; do
  [ -d "$rel" ] || continue
  case $stay in *" ${rel##*/} "*) ;; *) rm -rf "$rel"; echo "release ${rel##*/}" ;; esac
done
for own in "$base/meta/$name"/*; do
  [ -d "$base/releases/$name/${own##*/}" ] || rm -rf "$own"
done
if [ -e "$base/store/.batch.part" ] || [ -L "$base/store/.batch.part" ]; then rm -rf "$base/store/.batch.part"; fi
# All of those are there (who staged it has looked): as many in the store are no others.
set -- "$base/store"/*
if [ "$#" = "$blobs" ]; then echo "pruned"; exit 0; fi
# A tool that is missing or fails gives an empty list: then nothing is in use, and all would go.
cannot() { echo "cannot tell which files are in use ($1); none was removed" >&2; exit 74; }
nl='
'
# By words, not by `read`: that of dash asks the kernel for every single byte.
lines() { (set -f; IFS=$nl; set -- $1; echo $#); }
links=$(find "$base/releases" -type l) || cannot find
# All at once where readlink takes many; that of busybox takes one.
targets=$(find "$base/releases" -type l -exec readlink {} + 2>/dev/null)
if [ "$(lines "$links")" != "$(lines "$targets")" ]; then
  targets=$(find "$base/releases" -type l -exec readlink {} \;) || cannot readlink
fi
[ -n "$links" ] && [ "$(lines "$links")" = "$(lines "$targets")" ] || cannot readlink
# Where each is in use, nothing is to be looked up.
if [ "$(echo "$targets" | sort -u)" = "$(IFS=$nl; set -- "$base/store"/*; echo "$*")" ]; then
  echo "pruned"; exit 0
fi
# A variable a blob: looking each up in one long text would take the square of their number.
n=0
set -f
IFS=$nl
for target in $targets; do
  n=$((n + 1)) sha=${target##*/}
  case $sha in '' | *[!0-9a-f]*) ;; *) eval "used_$sha=1" ;; esac
done
set +f
[ "$n" = "$(lines "$links")" ] || cannot read
for blob in "$base/store"/*; do
  [ -f "$blob" ] || continue
  sha=${blob##*/}
  case $sha in late-*) ;; *.part) continue ;; esac
  case $sha in '' | *[!0-9a-f]*) rm -f "$blob"; echo "blob $sha"; continue ;; esac
  eval "[ -n \"\${used_$sha-}\" ]" || { rm -f "$blob"; echo "blob $sha"; }
done
echo "pruned"
