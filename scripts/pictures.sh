#!/bin/bash
# pictures.sh OUT: shows Corral's sessions in the real programs of desktops, without a screen, and
# saves pictures of them in the directory OUT: a notification by dunst; the bars of i3, polybar and
# waybar with the files in contrib; rofi with the picker; tmux with a status line; the tray icon;
# corralctl top. make pictures runs it. The script runs twice: outside it builds, inside, on a
# private systemd, it takes the pictures.
set -eu -o pipefail
self=$(cd "$(dirname "$0")" && pwd)/${0##*/}
top=${self%/scripts/*}

outside() {
  cd "$top"
  out=$(realpath -m "$1")
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  chmod 755 "$tmp"
  make -s build
  make -s install-files PREFIX="$tmp/usr"
  go build -o "$tmp/usermanager" ./internal/testbed/usermanager
  cp -r contrib "$tmp/contrib"
  cp scripts/screen-svg.py "$tmp"
  # icons in another prefix are found only with this file
  cp /usr/share/icons/hicolor/index.theme "$tmp/usr/share/icons/hicolor/"
  install -d -m 777 "$tmp/out"
  "$tmp/usermanager" -- bash "$self" --inside "$tmp"
  mkdir -p "$out"
  cp "$tmp"/out/*.png "$tmp"/out/*.svg "$out"
}

# --- the sessions ---------------------------------------------------------------------------------

# agent NAME: creates an agent definition whose program is scripted, so that the pictures are always
# the same.
agent() {
  mkdir -p "$HOME/.config/corral/agents"
  printf '[Agent]\nDescription=%s\nCommand=%s\n' "$1" "$HOME/agent" >"$HOME/.config/corral/agents/$1.agent"
}

# session ID AGENT DOES…: starts a session in ~/src/ID.
session() {
  local id=$1 agent=$2
  shift 2
  mkdir -p "$HOME/src/$id"
  corralctl run -q --id "$id" --dir "$HOME/src/$id" "$agent" -- "$@"
}

sessions() {
  cat >"$HOME/agent" <<'END'
#!/bin/bash
case $1 in
  works) corralctl report working; echo "Reading the tests…"; while :; do sleep 1; echo .; done ;;
  asks) sleep 0.5; corralctl report waiting --reason permission --message "$2"; exec sleep 1000 ;;
  ends) corralctl report idle --reason turn-ended --message "$2"; exec sleep 1000 ;;
  fails) sleep 0.5; echo "error: cannot find module"; exit 3 ;;
  waits) corralctl report idle; exec sleep 1000 ;;
esac
END
  chmod 755 "$HOME/agent"
  agent claude && agent codex && agent gemini
  printf '[Corral]\nLoginShell=no\n' >"$HOME/.config/corral/corral.conf" # its PATH has no corralctl
  systemctl --user daemon-reload
  systemctl --user start corrald
  session shop claude works
  session api codex works
  session docs gemini waits
  session site codex works
}

# --- the desktop ----------------------------------------------------------------------------------

started=()
# background COMMAND…: runs the command until end is called.
background() {
  "$@" >>"$log" 2>&1 &
  started+=($!)
}

end() {
  kill "${started[@]}" 2>/dev/null || :
  wait "${started[@]}" 2>/dev/null || :
  started=()
}

# within COMMAND…: waits until the command succeeds, at most 20 seconds.
within() {
  local deadline=$((SECONDS + 20))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || { echo "pictures: not so after 20 s: $*" >&2; tail -n 30 "$log" >&2; exit 1; }
    sleep 0.1
  done
}

# x_display: starts an X server without a screen and sets DISPLAY in the user's manager.
x_display() {
  local number
  rm -f "$HOME/display"
  Xvfb -noreset -displayfd 3 -screen 0 "${1}x24" 3>"$HOME/display" >>"$log" 2>&1 &
  screen=$!
  within test -s "$HOME/display"
  read -r number <"$HOME/display"
  export DISPLAY=:$number
  systemctl --user set-environment DISPLAY="$DISPLAY"
  xsetroot -solid '#2e3440'
}

# shot NAME [GEOMETRY]: saves a picture of the screen once it has not changed for half a second.
shot() {
  local before='' now
  for _ in $(seq 40); do
    import -silent -window root "$HOME/shot.png"
    now=$(convert "$HOME/shot.png" -format %# info:)
    [ "$now" != "$before" ] || break
    before=$now
    sleep 0.5
  done
  convert "$HOME/shot.png" ${2:+-crop "$2" +repage} -strip +dither -colors 128 "$out/$1.png"
}

shown() { [ "$(dunstctl count displayed)" = 1 ]; }
followed() { pgrep -u "$(id -u)" -f format=polybar; }

notification() {
  x_display 460x120
  mkdir -p "$HOME/.config/dunst"
  cat >"$HOME/.config/dunst/dunstrc" <<'END'
[global]
font = DejaVu Sans 10
width = 420
origin = top-center
offset = 0x14
padding = 12
horizontal_padding = 14
frame_width = 2
corner_radius = 8
icon_theme = hicolor
enable_recursive_icon_lookup = true
min_icon_size = 48
max_icon_size = 48
markup = full
format = "<b>%s</b>\n%b"
[urgency_normal]
background = "#12161c"
foreground = "#d7dde5"
frame_color = "#f1fa8c"
timeout = 0
[urgency_critical]
background = "#12161c"
foreground = "#d7dde5"
frame_color = "#ff5555"
timeout = 0
END
  background dunst
  within busctl --user --auto-start=no call org.freedesktop.Notifications /org/freedesktop/Notifications org.freedesktop.Notifications GetServerInformation
  session forum claude asks 'May I run "npm install" in ~/src/forum?'
  within shown
  shot notification
  end
  kill $screen
}

i3() {
  x_display 900x260
  mkdir -p "$HOME/.config/i3" "$HOME/.config/i3status"
  printf '%s\n' 'general { output_format = "i3bar"' 'colors = true' '}' 'order += "tztime local"' \
    'tztime local { format = "%H:%M" }' >"$HOME/.config/i3status/config"
  # shellcheck disable=SC2016 # $mod is i3's
  { printf '# i3 config file (v4)\nset $mod Mod4\nfont pango:DejaVu Sans 10\n' && cat "$contrib/i3/corral.conf"; } >"$HOME/.config/i3/config"
  PATH=$contrib/i3:$contrib/rofi:$PATH background /usr/bin/i3
  within sh -c 'xwininfo -root -tree | grep -q i3bar'
  shot i3bar 900x24+0+236
  PATH=$contrib/rofi:$PATH background rofi -show corral -modi corral:corral-rofi -theme Arc-Dark -theme-str 'window {width: 880px;} listview {lines: 6;}' -font 'DejaVu Sans Mono 10'
  within sh -c 'xwininfo -root -tree | grep -q rofi'
  shot rofi
  end
  kill $screen
}

polybar() {
  x_display 900x60
  cat >"$HOME/polybar.ini" <<END
include-file = $contrib/polybar/corral.ini
[bar/top]
background = #12161c
foreground = #d7dde5
height = 24
padding = 2
font-0 = DejaVu Sans:size=10
modules-left = corral
modules-right = date
[module/date]
type = internal/date
time = %H:%M
label = %time%
END
  background /usr/bin/polybar --config="$HOME/polybar.ini" top
  within sh -c 'xwininfo -root -tree | grep -q polybar'
  within followed
  shot polybar 900x24+0+0
  end
  kill $screen
}

waybar() {
  mkdir -p "$HOME/.config/waybar" "$HOME/.config/sway"
  cat >"$HOME/.config/waybar/config" <<END
{ "include": ["$contrib/waybar/corral.jsonc"], "height": 26, "modules-left": ["custom/corral"], "modules-right": ["tray", "clock"] }
END
  { printf '%s\n' '* { font-family: DejaVu Sans; font-size: 13px; }' 'window#waybar { background: #12161c; color: #d7dde5; }' && cat "$contrib/waybar/style.css"; } \
    >"$HOME/.config/waybar/style.css"
  printf '%s\n' 'output HEADLESS-1 resolution 900x60' 'output * bg #2e3440 solid_color' >"$HOME/.config/sway/config"
  WLR_BACKENDS=headless WLR_LIBINPUT_NO_DEVICES=1 WLR_RENDERER=pixman background sway
  within sh -c "ls $XDG_RUNTIME_DIR/wayland-*[0-9]"
  WAYLAND_DISPLAY=$(basename "$(ls -d "$XDG_RUNTIME_DIR"/wayland-*[0-9])")
  export WAYLAND_DISPLAY
  background /usr/bin/waybar
  within busctl --user --auto-start=no status org.kde.StatusNotifierWatcher
  XDG_CURRENT_DESKTOP=sway GDK_BACKEND=wayland background "$contrib/indicator/corral-indicator"
  within sh -c 'busctl --user get-property org.kde.StatusNotifierWatcher /StatusNotifierWatcher org.kde.StatusNotifierWatcher RegisteredStatusNotifierItems | grep -q corral'
  sleep 2
  grim -g '0,0 900x26' "$HOME/shot.png"
  convert "$HOME/shot.png" -strip +dither -colors 128 "$out/waybar.png"
  end
  unset WAYLAND_DISPLAY
}

tmux_line() {
  x_display 900x100
  { printf '%s\n' 'set -g status-style bg=#12161c,fg=#d7dde5' 'set -g status-right "%H:%M"' && cat "$contrib/tmux/corral.conf"; } >"$HOME/.tmux.conf"
  PATH=$contrib/tmux:$PATH background xterm -fa 'DejaVu Sans Mono' -fs 10 -bg '#12161c' -fg '#d7dde5' -geometry 98x5+0+0 -e tmux -L line new-session 'sleep 1000'
  within sh -c 'tmux -L line list-clients | grep -q .'
  within followed
  sleep 2
  shot tmux
  tmux -L line kill-server
  end
  kill $screen
}

# full_screen: saves corralctl top as an SVG.
full_screen() {
  session tests claude ends 'All 214 tests pass'
  tmux -L top -f /dev/null new-session -d -x 100 -y 26 'corralctl top'
  within sh -c "tmux -L top capture-pane -p | grep -q 'turn ended'"
  sleep 3 # for the columns of processor time and memory
  tmux -L top capture-pane -e -p | python3 "$scripts/screen-svg.py" 100 >"$out/top.svg"
  tmux -L top kill-server
}

inside() {
  local tmp=$1
  prefix=$tmp/usr contrib=$tmp/contrib scripts=$tmp out=$tmp/out log=$HOME/log
  PATH=$prefix/bin:$PATH
  export XDG_DATA_DIRS=$prefix/share:/usr/share
  mkdir -p "$XDG_RUNTIME_DIR/systemd/user"
  cp "$prefix"/lib/systemd/user/*.{service,slice} "$XDG_RUNTIME_DIR/systemd/user"
  systemctl --user set-environment PATH="$PATH" XDG_DATA_DIRS="$XDG_DATA_DIRS"
  sessions
  notification
  session cart codex fails
  corralctl wait -q cart || :
  full_screen
  i3
  polybar
  waybar
  tmux_line
  corralctl stop --all -q
}

case ${1-} in
  --inside) inside "$2" ;;
  '') echo 'usage: pictures.sh OUT' >&2 && exit 2 ;;
  *) outside "$1" ;;
esac
