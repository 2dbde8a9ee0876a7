#!/bin/bash
# needs.sh NEED...: checks that this machine has the programs that a make target needs. Missing ones
# are installed with apt: by root, after printing the packages; by others with sudo, after a
# question on the terminal that lists the packages (with CI=true without a question, if sudo needs
# no password). Otherwise, and with other package managers, the script prints the exact command and
# exits with status 1.
set -u

have() { command -v "$1" >/dev/null 2>&1; }
any_file() { compgen -G "$1" >/dev/null || { [ $# -gt 1 ] && shift && any_file "$@"; }; }

# has NEED: succeeds if it is installed.
has() {
  case $1 in
    go) go_is_new_enough ;;
    git | tmux | npm | vim | curl | jq | sway | foot | shellcheck | debootstrap | lintian | zsh | fish | mandoc | man | polybar | waybar | grim | rofi | xterm | i3 | i3status) have "$1" ;;
    imagemagick) have import && have convert ;;
    bubblewrap) have bwrap ;;
    iproute) have ip ;;
    openssh) have ssh-agent && have ssh-add && have ssh-keygen ;;
    makepkg) have makepkg && have strip ;; # it refuses to run without strip
    nix) have nix && have nix-instantiate ;;
    indicator) /usr/bin/python3 -c 'import gi; gi.require_version("AyatanaAppIndicator3", "0.1")' 2>/dev/null ;;
    systemd) have systemctl && have systemd-analyze && any_file /usr/lib/systemd/systemd /lib/systemd/systemd ;;
    dbus) have dbus-daemon ;;
    user-bus) any_file /usr/lib/systemd/user/dbus.socket /lib/systemd/user/dbus.socket ;;
    logind) any_file '/usr/lib/*/security/pam_systemd.so' '/lib/*/security/pam_systemd.so' '/usr/lib*/security/pam_systemd.so' ;;
    desktop-file-utils) have desktop-file-validate ;;
    appstream) have appstreamcli ;;
    uml) have patchelf && have mkfs.ext4 ;;
    gdbus) have gdbus ;;
    bash-completion) any_file /usr/share/bash-completion/bash_completion ;;
    dunst) have dunst && have dunstctl ;;
    mako) have mako && have makoctl ;;
    dbusmock) [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import dbusmock' 2>/dev/null ;;
    xvfb) have Xvfb ;;
    python3) [ -x /usr/bin/python3 ] ;;
    gio-python) [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'from gi.repository import Gio' 2>/dev/null ;;
    supervisor) have supervisord && have supervisorctl ;;
    s6) have s6-svscan ;;
    procps) have ps && have pgrep ;;
    cc) have gcc && any_file '/usr/include/stdlib.h' ;;
    *) echo "needs.sh: unknown need: $1" >&2 && exit 2 ;;
  esac
}

go_is_new_enough() {
  have go || return 1
  # Inside the module, an older Go that may download the version in go.mod has done so before it
  # prints its version.
  local version
  version=$(cd "$(dirname "$0")/.." && go env GOVERSION 2>/dev/null) || return 1
  [ "$(printf '%s\n' go1.25 "$version" | sort -V | head -n 1)" = go1.25 ]
}

# packages NEED: prints the packages that contain it, by the distribution's package manager.
packages() {
  case $1:$manager in
    systemd:*) echo systemd ;;
    dbus:dnf) echo dbus-daemon ;;
    dbus:*) echo dbus ;;
    user-bus:apt-get) echo dbus-user-session ;;
    user-bus:dnf) echo dbus-daemon dbus-common ;;
    user-bus:*) echo dbus ;;
    logind:apt-get) echo libpam-systemd ;;
    logind:dnf) echo systemd-pam ;;
    logind:*) echo systemd ;;
    cc:apt-get) echo gcc libc6-dev ;;
    cc:dnf) echo gcc glibc-devel ;;
    cc:*) echo gcc ;;
    uml:*) echo patchelf e2fsprogs ;;
    gdbus:apt-get) echo libglib2.0-bin ;;
    gdbus:*) echo glib2 ;;
    xvfb:dnf) echo xorg-x11-server-Xvfb ;;
    xvfb:pacman) echo xorg-server-xvfb ;;
    iproute:dnf) echo iproute ;;
    iproute:*) echo iproute2 ;;
    openssh:apt-get) echo openssh-client ;;
    openssh:dnf) echo openssh-clients ;;
    python3:pacman) echo python ;;
    gio-python:apt-get) echo python3-gi gir1.2-glib-2.0 ;;
    gio-python:dnf) echo python3-gobject-base ;;
    gio-python:*) echo python-gobject ;;
    mako:apt-get) echo mako-notifier ;;
    dbusmock:pacman) echo python-dbusmock ;;
    dbusmock:*) echo python3-dbusmock ;;
    procps:dnf | procps:pacman) echo procps-ng ;;
    man:*) echo man-db ;;
    shellcheck:dnf) echo ShellCheck ;;
    i3:apt-get) echo i3-wm ;;
    imagemagick:dnf) echo ImageMagick ;;
    nix:apt-get) echo nix-bin ;;
    makepkg:apt-get) echo makepkg binutils ;;
    makepkg:pacman) echo pacman binutils ;;
    indicator:apt-get) echo python3-gi gir1.2-ayatanaappindicator3-0.1 ;;
    indicator:*) echo libayatana-appindicator ;;
    *) echo "$1" ;;
  esac
}

manager=
for m in apt-get dnf pacman; do
  have $m && manager=$m && break
done

missing=() wanted=() status=0
for need in "$@"; do
  has "$need" && continue
  if [ "$need" = go ]; then
    echo 'Go 1.25 or newer is needed: https://go.dev/doc/install' >&2
    status=1
    continue
  fi
  missing+=("$need")
  read -ra of_need <<<"$(packages "$need")"
  wanted+=("${of_need[@]}")
done
[ ${#missing[@]} -gt 0 ] || exit $status

case $manager in
  apt-get) install=(apt-get install -y --no-install-recommends "${wanted[@]}") ;;
  dnf) install=(dnf install -y "${wanted[@]}") ;;
  pacman) install=(pacman -S --needed "${wanted[@]}") ;;
  *)
    echo "needed and not found here: ${missing[*]}" >&2
    exit 1
    ;;
esac

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

# may_install: succeeds if packages may be installed now. sudo is never used without the consent of
# a person on the terminal.
may_install() {
  [ "$manager" = apt-get ] || return 1
  if [ ${#as_root[@]} = 0 ]; then
    echo "Installing what is needed and not here: ${wanted[*]}"
    return
  fi
  have sudo || return 1
  if [ "${CI-}" = true ]; then
    sudo -n true 2>/dev/null || return 1
    echo "Installing with sudo what is needed and not here: ${wanted[*]}"
    return
  fi
  [ -t 0 ] && [ -t 2 ] || return 1
  local answer
  read -rp "Needed and not here: ${wanted[*]}. Install with sudo apt-get? [Y/n] " answer || return 1
  [[ $answer =~ ^([Yy]([Ee][Ss])?)?$ ]]
}

if may_install; then
  # sudo may ask for a password, once, before the output is hidden.
  [ ${#as_root[@]} = 0 ] || sudo -v || exit 1
  quietly=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive)
  # The package lists of a new machine are empty or old: they are downloaded only if the
  # installation fails without that.
  "${quietly[@]}" "${install[@]}" >/dev/null 2>&1 </dev/null ||
    { "${quietly[@]}" apt-get update -q >/dev/null </dev/null && "${quietly[@]}" "${install[@]}" >/dev/null </dev/null; }
  for need in "${missing[@]}"; do
    has "$need" || { echo "still not there: $need" >&2 && status=1; }
  done
  [ $status = 0 ] && exit 0
fi
echo "Needed here, please run: ${as_root[*]:+sudo }${install[*]}" >&2
exit 1
