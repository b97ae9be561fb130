# The layers, in the order in which they change less and less seldom: base, python, runner environment, Triton,
# bridge, engine environment, application.
{
  fetch,
  sms,
  sources,
  steps,
  tools,
}:
let
  inherit (steps)
    debian
    environment
    environmentLayer
    files
    link
    mkEngineLayer
    mkLayer
    paths
    prune
    ;
  home = "opt/cog-triton";
  user = 1000;
  debianPython = "python${(fetch.wheels "runner").python}";

  own = {
    uid = user;
  };

  # MPI, CPython and the wheels of TensorRT-LLM.
  tensorrt-llm =
    let
      mpi = debian "mpi";
      cpython = fetch.publisher "cpython";
      interpreter = python: "/${home}/python${python}/bin/python${python}";
      wheels = environment {
        name = "engine-tensorrt-llm";
        place = "${home}/engines/tensorrt_llm";
        inherit interpreter;
      };
      library = "libpython${wheels.python}.so.1.0";
      into = "${home}/python${wheels.python}";
    in
    {
      inherit (wheels) place python;
      packages = mpi.packages ++ [ cpython ] ++ wheels.packages;
      steps =
        mpi.steps
        ++ [
          (link "usr/bin/mpirun" "mpirun.openmpi")
          {
            do = "archive";
            source = "${cpython.path}";
            inherit into;
            strip = 1;
            wanted = [ ];
          }
          # TensorRT-LLM's libraries ask the loader for it.
          (link "usr/lib/x86_64-linux-gnu/${library}" "/${into}/lib/${library}")
        ]
        ++ wheels.steps;
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

  runner = environmentLayer {
    name = "runner";
    place = "${home}/runner";
  };

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

  engine-ctranslate2 = environmentLayer {
    name = "engine-ctranslate2";
    place = "${home}/engines/ctranslate2";
  };

  engine-vllm =
    sm:
    mkEngineLayer "vllm" sm (environment {
      name = "engine-vllm";
      place = "${home}/engines/vllm";
    });

  engine-tensorrt-llm = sm: mkEngineLayer "tensorrt-llm" sm tensorrt-llm;

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
        (prune ([ "--builder" ] ++ map toString sms) tensorrt-llm)
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
