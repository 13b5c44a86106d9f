# What the faults of boards in faults.yaml share. $0 is the fault, $1 the user who logs in, $2 the
# home, $3 libcdsprpc and $4 one that is older than dspqueue (base64).
user=$1 home=$2 kept=/run/lab-kept/$0
lib=$(dirname /usr/lib/*-linux-gnu/libc.so.6)

save_nodes() {
    [ -e /run/lab-nodes ] || stat -c '%a %u:%g %n' /dev/fastrpc-* > /run/lab-nodes 2>/dev/null
}

restore_nodes() {
    [ -e /run/lab-nodes ] || return 0
    while read -r mode owner node; do
        [ -e "$node" ] || mknod "$node" c 1 3
        chown "$owner" "$node"
        chmod "$mode" "$node"
    done < /run/lab-nodes
    rm /run/lab-nodes
}

# A file system of its own at the deploy folder, mounted with these options.
mount_deploy() {
    install -d -o "$user" -g "$user" "$home/fleet" && mount -t tmpfs -o "$1" tmpfs "$home/fleet"
}

owned() {
    echo "uid=$(id -u "$user"),gid=$(id -g "$user")"
}

shells() {
    find /usr/share/hexagon-dsp/ /usr/lib/dsp/ /usr/lib/rfsa/ -name "${1-}fastrpc_shell*" 2>/dev/null
}

set_cdsp() {
    for d in /sys/class/remoteproc/*; do
        case $(cat "$d/name") in cdsp*) echo "$1" > "$d/state" ;; esac
    done
}

# keep FILE saves it; put_back brings back what this fault saved.
keep() {
    mkdir -p "$kept" && cp -a "$1" "$kept/" && dirname "$1" > "$kept.place"
}

put_back() {
    [ -d "$kept" ] || return 0
    # the files alone: "$kept/." would give the folder to root
    cp -a "$kept"/* "$(cat "$kept.place")" && rm -r "$kept" "$kept.place"
}

# Sets f to the first file of the set-up in ~/npu whose name fits, and saves it.
keep_npu() {
    f=$(find "$home/npu" -name "$1" | grep -v Calculator | head -n 1)
    [ -n "$f" ] && keep "$f"
}

# Sets r to the current release, m to what fleet keeps of it.
current() {
    for r in "$home"/fleet/current/*; do r=$(readlink -f "$r"); done
    m=${r%/*/*/*}/meta/${r#"${r%/*/*}/"}
}

# Sets b to the last blob of a .bin that the current release links to, and saves it.
keep_blob() {
    current
    b=$(readlink -f "$(find "$r" -name "*.bin" | head -n 1)")
    keep "$b" && chmod u+w "$b"
}

old_build() {
    LC_ALL=C sed -i 's/v2\.[0-9][0-9]\.\([0-9]*\.[0-9]\{12\}\)/v2.40.\1/g' "$1"
}

add_to_profile() {
    printf '%s\n' "$1 # lab $0" >> "$home/.profile" && chown -h "$user:" "$home/.profile"
}

clean_profile() {
    sed -i "/# lab $0\$/d" "$home/.profile"
}

put_libcdsprpc_away() {
    mkdir -p /run/lab-cdsprpc && mv $lib/libcdsprpc.so* /run/lab-cdsprpc/
}

return_libcdsprpc() {
    mv /run/lab-cdsprpc/* $lib/ && rmdir /run/lab-cdsprpc && ldconfig
}
