# Gives a write lease back. $1 folder, $2 generation, $3 token.
dir=$1 at=$1/write.$2 mine=$3
echo "fleet-lease 1"
token=''
read -r v owner reason run token _ 2>/dev/null < "$at/owner"
# Nothing that is there is written to, nor what a link leads to.
put() { rm -f "$at/released"; (set -C; : > "$at/released"); }
if [ "$token" = "$mine" ] && put; then echo "freed"; fi
echo "end"
