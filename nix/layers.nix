# The layers, in the order in which they change less and less seldom: base, python, runner environment, Triton,
# bridge, engine environment, application. See nix/oci/steps.py for the steps.
{
  fetch,
  sources,
  tools,
}:
let
  home = "opt/cog-triton";
  user = 1000;

  mkLayer =
    {
      name,
      steps,
      packages ? [ ],
      attributes ? { },
    }:
    tools.run {
      name = "layer-${name}";
      module = "layer";
      programs = sources.layerPrograms;
      spec = {
        inherit name steps attributes;
        packages = map (package: removeAttrs package [ "path" ]) packages;
      };
    };

  paths = map (package: "${package.path}");

  # An environment of its own for the wheels of a lock, on Debian's Python.
  environment =
    name: place:
    let
      wheels = fetch.wheels name;
    in
    {
      inherit (wheels) packages;
      steps = [
        {
          do = "environment";
          inherit place;
          interpreter = "/usr/bin/python${wheels.python}";
          version = wheels.python;
          wheels = paths wheels.packages;
        }
      ];
    };

  debian = set: {
    packages = fetch.debian set;
    steps = [
      {
        do = "debian";
        packages = paths (fetch.debian set);
      }
    ];
  };

  files = source: into: {
    do = "files";
    source = "${source}";
    inherit into;
  };

  own = {
    uid = user;
  };
in
rec {
  base = mkLayer {
    name = "base";
    inherit (debian "base") packages;
    steps = (debian "base").steps ++ [
      { do = "certificates"; }
      (files "${sources.files}/base" "")
      {
        do = "directories";
        paths = [
          "tmp"
          "var/tmp"
          "home/cog"
        ];
      }
    ];
    attributes = {
      "tmp".mode = 1023; # 1777, which Nix cannot write in octal
      "var/tmp".mode = 1023;
      "home/cog" = own;
    };
  };

  python = mkLayer {
    name = "python";
    inherit (debian "python") packages;
    steps = (debian "python").steps ++ [
      {
        do = "link";
        path = "usr/bin/python";
        target = "python${(fetch.wheels "runner").python}";
      }
      {
        do = "link";
        path = "usr/bin/python3";
        target = "python${(fetch.wheels "runner").python}";
      }
    ];
  };

  runner = mkLayer ({ name = "runner"; } // environment "runner" "${home}/runner");

  triton =
    let
      inherit (fetch.wheels "triton") packages;
    in
    mkLayer {
      name = "triton";
      inherit packages;
      steps = [
        {
          do = "extract";
          place = "${home}/triton";
          wheels = paths packages;
          wanted = [
            "pytriton/tritonserver/bin"
            "nvidia_pytriton.libs"
          ];
        }
      ];
    };

  bridge = mkLayer {
    name = "bridge";
    steps = [ (files tools.bridge "${home}/bridge") ];
  };

  engine-ctranslate2 = mkLayer (
    { name = "engine-ctranslate2"; } // environment "engine-ctranslate2" "${home}/engines/ctranslate2"
  );

  # What serves, and what the command line needs; `predictor` is the package that Cog serves.
  application =
    predictor:
    mkLayer {
      name = "application";
      steps = [
        (files sources.application "src")
        (files "${sources.files}/application" "")
        {
          do = "link";
          path = "src/.cog";
          target = "${predictor}/.cog";
        }
        {
          do = "directories";
          paths = [
            "src/models"
            "src/triton_model_repo/tensorrt_llm/1"
            "var/cache/cog-triton"
          ];
        }
      ];
      attributes = {
        "src" = own;
        "src/models" = own;
        "var/cache/cog-triton" = own;
      };
    };
}
