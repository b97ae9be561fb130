# The layers, in the order in which they change less and less seldom: base, python, runner environment, Triton,
# bridge, engine environment, application. See nix/oci/steps.py for the steps.
{
  fetch,
  sms,
  sources,
  tools,
}:
let
  home = "opt/cog-triton";
  user = 1000;
  debianPython = "python${(fetch.wheels "runner").python}";

  mkLayer =
    {
      name,
      steps,
      packages ? [ ],
      attributes ? { },
    }:
    let
      unknown = builtins.filter (package: package.sha256 == "") packages;
    in
    if unknown != [ ] then
      # Before anything else of the layer, which can be gigabytes, is fetched.
      (builtins.head unknown).path
    else
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
          left_out = wheels.leftOut;
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

  link = path: target: {
    do = "link";
    inherit path target;
  };

  prune = options: place: version: {
    do = "prune";
    program = "${sources.prune}";
    inherit options place version;
  };
  # What an engine layer is pruned for: one GPU architecture, or nothing when `sm` is null.
  pruneFor =
    sm: place: version:
    if sm == null then
      [ ]
    else
      [
        (prune [
          "--sm"
          (toString sm)
        ] place version)
      ];
  variant = sm: if sm == null then "full" else toString sm;

  own = {
    uid = user;
  };

  # MPI, CPython and the wheels of TensorRT-LLM.
  tensorrt-llm =
    let
      mpi = debian "mpi";
      cpython = fetch.publisher "cpython";
      wheels = fetch.wheels "engine-tensorrt-llm";
      place = "${home}/engines/tensorrt_llm";
      interpreter = "${home}/python${wheels.python}";
      library = "libpython${wheels.python}.so.1.0";
    in
    {
      inherit place;
      inherit (wheels) python;
      packages = mpi.packages ++ [ cpython ] ++ wheels.packages;
      steps = mpi.steps ++ [
        (link "usr/bin/mpirun" "mpirun.openmpi")
        {
          do = "archive";
          source = "${cpython.path}";
          into = interpreter;
          strip = 1;
          wanted = [ ];
        }
        # TensorRT-LLM's libraries ask the loader for it.
        (link "usr/lib/x86_64-linux-gnu/${library}" "/${interpreter}/lib/${library}")
        {
          do = "environment";
          inherit place;
          interpreter = "/${interpreter}/bin/python${wheels.python}";
          version = wheels.python;
          wheels = paths wheels.packages;
          left_out = wheels.leftOut;
        }
      ];
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
      (link "usr/bin/python" debianPython)
      (link "usr/bin/python3" debianPython)
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

  engine-vllm =
    sm:
    let
      place = "${home}/engines/vllm";
      vllm = environment "engine-vllm" place;
    in
    mkLayer {
      name = "engine-vllm-${variant sm}";
      inherit (vllm) packages;
      steps = vllm.steps ++ pruneFor sm place (fetch.wheels "engine-vllm").python;
    };

  engine-tensorrt-llm =
    sm:
    mkLayer {
      name = "engine-tensorrt-llm-${variant sm}";
      inherit (tensorrt-llm) packages;
      steps = tensorrt-llm.steps ++ pruneFor sm tensorrt-llm.place tensorrt-llm.python;
    };

  # With the scripts that prepare checkpoints, and TensorRT's resources for engines of the runners' SMs.
  engine-tensorrt-llm-build =
    let
      examples = fetch.publisher "tensorrt-llm-examples";
    in
    mkLayer {
      name = "engine-tensorrt-llm-build";
      packages = tensorrt-llm.packages ++ [ examples ];
      steps = tensorrt-llm.steps ++ [
        {
          do = "archive";
          source = "${examples.path}";
          into = tensorrt-llm.place;
          strip = 1;
          wanted = [ "examples" ];
        }
        (prune ([ "--builder" ] ++ map toString sms) tensorrt-llm.place tensorrt-llm.python)
      ];
    };

  # What serves, and what the command line needs; `predictor` is the package that Cog serves.
  application =
    predictor:
    mkLayer {
      name = "application-${predictor}";
      steps = [
        (files sources.application "src")
        (files "${sources.files}/application" "")
        (link "src/.cog" "${predictor}/.cog")
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
