# What comes from outside, by hash. Each result is an attribute set: where the file is (`path`, in the store),
# and what an SBOM says of it.
{
  pkgs,
  locks,
  readJSON,
}:
let
  debian = readJSON (locks + "/debian.json");
  settings = readJSON (locks + "/settings.json");

  storeName = builtins.replaceStrings [ "~" ":" "!" "%" ] [ "-" "-" "-" "-" ];
  fileName = file: storeName (baseNameOf file);
  filter = builtins.filter;

  # Evaluation never fails: a file that has no hash yet fails when it is built, and says what to do.
  unknown =
    file:
    pkgs.runCommand "no-hash-${fileName file}" { inherit file; } ''
      echo "The locks hold no sha256 for $file: run 'make lock' on a machine that reaches its index." >&2
      exit 1
    '';

  described = type: locked: path: {
    inherit type path;
    inherit (locked) name version file;
    sha256 = if locked.sha256 == null then "" else locked.sha256;
  };

  publishers = readJSON (locks + "/publishers.json");
  named = name: rows: builtins.head (filter (row: row.name == name) rows);

  # Which authorities TLS trusts: a distribution that is its own toolchain knows them.
  authorities =
    if pkgs ? cacert then { SSL_CERT_FILE = "${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt"; } else { };

  # pip knows where wheels are, even behind a company's mirror, so no address is needed here.
  fetchWheel =
    python:
    {
      name,
      version,
      file,
      sha256,
      index ? null,
      ...
    }:
    let
      tags = builtins.match ".*-([^-]+)-([^-]+)-([^-]+)[.]whl" file;
      platforms = filter builtins.isString (builtins.split "[.]" (builtins.elemAt tags 2));
      wanted =
        if tags == null then
          [ "--no-binary=:all:" ]
        else
          [
            "--only-binary=:all:"
            "--implementation=cp"
            "--python-version=${python}"
            "--abi=${builtins.elemAt tags 1}"
          ]
          ++ map (platform: "--platform=${platform}") platforms;
    in
    if sha256 == null then
      unknown file
    else
      pkgs.runCommand (fileName file)
        (
          authorities
          // {
            outputHashMode = "flat";
            outputHashAlgo = "sha256";
            outputHash = sha256;
            preferLocalBuild = true;
            nativeBuildInputs = [ (pkgs.python3.withPackages (packages: [ packages.pip ])) ];
            impureEnvVars = [
              "http_proxy"
              "https_proxy"
              "no_proxy"
              "PIP_INDEX_URL"
              "PIP_EXTRA_INDEX_URL"
              "PIP_CERT"
              "NVIDIA_INDEX_URL"
            ];
            requirement = "${name}==${version} --hash=sha256:${sha256}";
            options = wanted;
            index = if index == null then "" else index;
          }
        )
        ''
          # Where there is no sandbox, what a source writes into the home that Nix names stops every other build.
          export HOME="$PWD"
          echo "$requirement" > requirement.txt
          # As in `make lock`, for companies with a mirror of it.
          if [ "$index" = https://pypi.nvidia.com ]; then index=''${NVIDIA_INDEX_URL:-$index}; fi
          python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
            --require-hashes $options ''${index:+--index-url="$index"} --requirement requirement.txt --dest downloaded
          mv downloaded/* "$out"
        '';

  # As in package URLs: debian-13.
  distro =
    let
      release = builtins.head (filter (package: package.name == "base-files") debian.packages);
    in
    "debian-${builtins.head (builtins.match "([0-9]+).*" release.version)}";

  # nixpkgs knows the mirrors of Debian's main archive; the host's toolchain also those of updates.
  mirrors = pkgs.debianMirrors or [ "debian" ];

  # The mirror drops superseded packages; the snapshot archive never does.
  fetchDebian =
    {
      archive,
      file,
      sha256,
      ...
    }:
    pkgs.fetchurl {
      name = fileName file;
      urls = (if builtins.elem archive mirrors then [ "mirror://${archive}/${file}" ] else [ ]) ++ [
        "${settings.debian_snapshots}/${archive}/${debian.snapshot}/${file}"
      ];
      inherit sha256;
    };
in
{
  # Whether there is such an environment.
  hasWheels = environment: builtins.pathExists (locks + "/wheels/${environment}.json");

  # The wheels of one environment.
  wheels =
    environment:
    let
      lock = readJSON (locks + "/wheels/${environment}.json");
    in
    {
      inherit (lock) python;
      # Paths in site-packages that several wheels write and nobody needs.
      leftOut = map (entry: entry.path) settings.left_out;
      packages = map (locked: described "wheel" locked (fetchWheel lock.python locked)) lock.wheels;
    };

  # A file on a publisher's own site.
  publisher =
    name:
    let
      locked = named name publishers.artifacts;
      quoted = builtins.replaceStrings [ "+" ] [ "%2B" ] locked.file;
      url = builtins.replaceStrings [ "{file}" ] [ quoted ] locked.address;
    in
    {
      inherit (locked) address;
    }
    // described "source" locked (
      if locked.sha256 == null then
        unknown locked.file
      else
        pkgs.fetchurl {
          name = fileName locked.file;
          urls = [ url ];
          inherit (locked) sha256;
        }
    );

  # A folder of a publisher's repository. A commit names its content, so that no hash is locked beside it; git
  # fetches it, when an image that needs it is evaluated.
  repository =
    name:
    let
      locked = named name publishers.sources;
      tree = builtins.fetchGit {
        url = locked.repository;
        rev = locked.commit;
        # Nix before 2.20 fetches a ref with its history, later ones only the commit.
        ref = "refs/tags/${locked.tag}";
        shallow = true;
      };
    in
    {
      type = "commit";
      inherit (locked)
        name
        version
        commit
        repository
        ;
      path = "${tree}/${locked.folder}";
    };

  # The Debian packages of one set.
  debian =
    set:
    map (locked: { inherit distro; } // described "debian" locked (fetchDebian locked)) (
      filter (package: package.set == set) debian.packages
    );
}
