{
  # nix run 'github:corrald/corral?dir=contrib/nix' -- list
  # In NixOS or home-manager, systemd.packages = [ corral ]; adds the services of the package, and this enables the daemon:
  #   systemd.user.services.corrald.wantedBy = [ "default.target" ];
  description = "Supervisor of coding agents, on the systemd of each user";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.buildGoModule rec {
          pname = "corral";
          version = "0-unstable-${self.shortRev or "dirty"}";
          src = ../..;

          # The hash of the output of `go mod vendor`, as printed by contrib/nix/vendor-hash.sh; make check compares it.
          vendorHash = "sha256-vqjZ25b8+W4Py0w6hdFeCZ8fGivA+u597HmRwesbMk0=";

          subPackages = [ "cmd/corrald" "cmd/corralctl" "cmd/corral-shim" ];
          env.CGO_ENABLED = 0;
          ldflags = [ "-s" "-w" "-X github.com/corrald/corral/internal/version.Version=${version}" "-X main.version=${version}" ];

          # The tests need systemd, a bus and tmux: run make test instead.
          doCheck = false;

          nativeBuildInputs = [ pkgs.go-md2man pkgs.makeWrapper ];

          # Installs the programs and pages that are built here with make install-files. The corralctl that agents' hooks run
          # needs no wrapper.
          postInstall = ''
            mkdir -p build/man
            cp $out/bin/corrald $out/bin/corralctl $out/bin/corral-shim build/
            rm $out/bin/corral-shim
            go run ./internal/manual -o build/man -version ${version} -date 1970-01-01 docs/man/*.md
            for page in build/man/*.md; do go-md2man -in "$page" -out "''${page%.md}"; done
            make install-files MD2MAN=go-md2man PREFIX=$out DESTDIR=
            # corrald runs tmux, git and bubblewrap, which the user's PATH may not contain.
            wrapProgram $out/bin/corrald --suffix PATH : ${pkgs.lib.makeBinPath [ pkgs.tmux pkgs.git pkgs.bubblewrap ]}
          '';

          meta = {
            description = "Supervisor of coding agents, on the systemd of each user";
            homepage = "https://github.com/corrald/corral";
            license = pkgs.lib.licenses.mit;
            mainProgram = "corralctl";
            platforms = pkgs.lib.platforms.linux;
          };
        };
      });

      devShells = each (pkgs: {
        default = pkgs.mkShell { packages = [ pkgs.go pkgs.tmux pkgs.bubblewrap pkgs.shellcheck pkgs.mandoc ]; };
      });
    };
}
