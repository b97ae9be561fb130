# The few names of nixpkgs that the images' build uses, with nixpkgs' own arguments, over programs in /usr.
# `root` is where bin/python3 is: another Python can be tried without another copy of this.
{
  root ? "/usr",
}:
let
  program = place: {
    outPath = place;
    withPackages = _: program place;
  };

  runCommand =
    name: attributes: script:
    derivation (
      {
        inherit name;
        system = "x86_64-linux";
        builder = "/bin/bash";
        args = [
          "-euc"
          # Ends in bash itself: Nix kills a builder that closes its outputs before it exits, as coreutils do.
          "${script}\n:"
        ];
        PATH = "${root}/bin:/usr/bin:/bin";
        LC_ALL = "C.UTF-8";
      }
      // removeAttrs attributes [
        "nativeBuildInputs"
        "meta"
      ]
    );
in
{
  python3 = program root;
  skopeo = program "/usr";
  inherit runCommand;

  # The archives whose mirrors apt knows.
  debianMirrors = [
    "debian"
    "debian-security"
  ];

  fetchurl =
    {
      name,
      urls,
      sha256,
    }:
    runCommand name {
      outputHashMode = "flat";
      outputHashAlgo = "sha256";
      outputHash = sha256;
      preferLocalBuild = true;
      impureEnvVars = [
        "http_proxy"
        "https_proxy"
        "no_proxy"
        "SSL_CERT_FILE"
      ];
    } ''python3 -IB ${./fetch.py} "$out" ${sha256} ${toString urls}'';

  nixfmt =
    runCommand "nixfmt" { }
      ''echo "The formatter comes from nixpkgs: omit the override of that input." >&2; exit 1'';

  mkShell =
    { ... }:
    runCommand "shell" { }
      ''echo "The shell comes from nixpkgs; here, \`make setup\` makes the environments." >&2; exit 1'';
}
