# The layers, from those that change most seldom to those that change most often: base, python, runner
# environment, Triton, bridge, what an engine needs besides its environment, that environment, command line,
# application.
{
  fetch,
  sms,
  sources,
  steps,
  tools,
  version,
}:
let
  inherit (steps)
    bytecode
    debian
    debianPython
    environment
    environmentLayer
    files
    link
    loaderCache
    mkEngineLayer
    mkLayer
    paths
    prune
    ;
  home = "opt/cog-triton";
  user = 1000;

  # Also writable where a platform runs containers as an arbitrary user in the group root (OpenShift).
  own = {
    uid = user;
    gid = 0;
    mode = 509; # 0775, which Nix cannot write in octal
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
        libraries = [ "${into}/lib/python${python}" ];
      };
      inherit (fetch.wheels "engine-tensorrt-llm") python;
      library = "libpython${python}.so";
      into = "${home}/python${python}";
    in
    {
      inherit (wheels) bytecode place python;
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
          }
          # TensorRT-LLM asks the loader for both names.
          (link "usr/lib/x86_64-linux-gnu/${library}.1.0" "/${into}/lib/${library}.1.0")
          (link "usr/lib/x86_64-linux-gnu/${library}" "${library}.1.0")
          (loaderCache [
            "base"
            "python"
            "mpi"
          ])
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
          "home/cog/.cache/huggingface"
        ];
      }
      # Where a hub cache is mounted into images whose user is root.
      (link "root/.cache" "/home/cog/.cache")
    ];
    attributes = {
      "tmp".mode = 1023; # 1777
      "var/tmp".mode = 1023;
      "home/cog" = own;
      "home/cog/.cache" = own;
      "home/cog/.cache/huggingface" = own;
    };
  };

  python = mkLayer {
    name = "python";
    inherit (debian "python") packages;
    steps = (debian "python").steps ++ [
      (link "usr/bin/python" "python${debianPython}")
      (link "usr/bin/python3" "python${debianPython}")
      (bytecode "usr/bin/python${debianPython}" debianPython {
        places = [ "usr/lib/python${debianPython}" ];
      })
      (loaderCache [
        "base"
        "python"
      ])
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
    own = {
      name = "cog-triton-engine-bridge";
      inherit version;
    };
    steps = [ (files tools.bridge "${home}/bridge") ];
  };

  engine-ctranslate2 = environmentLayer {
    name = "engine-ctranslate2";
    place = "${home}/engines/ctranslate2";
  };

  tokenizer-converter = environmentLayer {
    name = "tokenizer-converter";
    place = "${home}/tokenizer-converter";
    # Only the few model modules that make tokenizers are loaded.
    seldom = [ "transformers/models" ];
  };

  # What vLLM's kernels need at a start: Triton, the language, launches each of them with a little C, which it
  # compiles. zig is clang with the headers and start files of every libc; only glibc's for x86-64 are here.
  compiler =
    let
      inherit (fetch.wheels "bridge") packages;
      headers = debian "headers";
    in
    mkLayer {
      name = "compiler";
      packages = headers.packages ++ packages;
      steps = headers.steps ++ [
        {
          do = "extract";
          place = "${home}/compiler";
          wheels = paths packages;
          wanted = [
            "ziglang/zig"
            "ziglang/LICENSE"
            "ziglang/lib/c"
            "ziglang/lib/c.zig"
            "ziglang/lib/compiler_rt"
            "ziglang/lib/compiler_rt.zig"
            "ziglang/lib/include"
            "ziglang/lib/libc/glibc"
            "ziglang/lib/libc/include/any-linux-any"
            "ziglang/lib/libc/include/generic-glibc"
            "ziglang/lib/libc/include/x86-linux-any"
            "ziglang/lib/libc/include/x86-linux-gnu"
            "ziglang/lib/std"
            "ziglang/lib/ubsan_rt.zig"
          ];
        }
        (files "${sources.files}/compiler" "")
      ];
    };

  # `release` is "vllm", or "vllm-next": newer, and not yet proven on GPUs.
  engine-vllm =
    release: sm:
    mkEngineLayer release sm (environment {
      name = "engine-${release}";
      place = "${home}/engines/vllm";
      # A third of the layer's bytecode; a start loads little or none of it.
      seldom = [
        "anthropic"
        "cudnn"
        "numba"
        "nvidia_cutlass_dsl"
        "tilelang"
        "transformers/models"
      ];
    });

  engine-tensorrt-llm = sm: mkEngineLayer "tensorrt-llm" sm tensorrt-llm;

  # With the scripts that prepare checkpoints, and TensorRT's resources for engines of the runners' SMs.
  engine-tensorrt-llm-build =
    let
      examples = fetch.repository "tensorrt-llm-examples";
    in
    mkLayer {
      name = "engine-tensorrt-llm-build";
      packages = tensorrt-llm.packages ++ [ examples ];
      steps = tensorrt-llm.steps ++ [
        (files examples.path "${tensorrt-llm.place}/examples")
        (prune ([ "--builder" ] ++ map toString sms.tensorrt-llm) tensorrt-llm)
        tensorrt-llm.bytecode
      ];
    };

  # What the server, the builder and the command line have in common.
  shared = mkLayer {
    name = "shared";
    steps = [ (files sources.shared "src") ];
    attributes."src" = own;
  };

  # The command line, and the builder, which it uses. A layer of its own, so that a change in the server sends
  # less.
  command-line = mkLayer {
    name = "command-line";
    steps = [ (files sources.commandLine "src") ];
    attributes."src" = own;
  };

  # The server; `predictor` is the package that Cog serves. Without bytecode: it would save 0.06 s of a start,
  # and more than double what every commit sends.
  application =
    predictor:
    mkLayer {
      name = "application-${predictor}";
      own = {
        name = "cog-triton";
        inherit version;
      };
      steps = [
        (files sources.application "src")
        (files "${sources.files}/application" "")
        (link "src/.cog" "${predictor}/.cog")
        {
          do = "directories";
          paths = [
            "src/triton_model_repo/tensorrt_llm/1"
            "var/cache/cog-triton"
          ];
        }
      ]
      ++ (if predictor == "builder" then [ (files sources.examples "src/examples") ] else [ ]);
      attributes = {
        "src" = own;
        "var/cache/cog-triton" = own;
      };
    };
}
