# Names of the groups, users and installed packages (with versions) of a device; reads only.
set -u
echo "fleet-accounts 1"
while IFS=: read -r name rest; do echo "group $name"; done < /etc/group
while IFS=: read -r name rest; do echo "user $name"; done < /etc/passwd
if command -v dpkg-query >/dev/null 2>&1; then
  dpkg-query -W -f 'package ${binary:Package} ${Version} ${db:Status-Status}\n' 2>/dev/null | while read -r word name version state; do
    case $state in not-installed | config-files) ;; *) echo "$word $name $version" ;; esac
  done
fi
echo "end"
