# The images: which layers, and what runs in them.
{
  fetch,
  mkImage,
  parts,
  sms,
  version,
}:
let
  runner = fetch.wheels "runner";
  cog = builtins.head (builtins.filter (package: package.name == "cog") runner.packages);
  source = "https://github.com/replicate/cog-triton";
  description = "Turn a Hugging Face model into an engine, and serve it with NVIDIA Triton behind Cog's API";

  imageConfig =
    {
      name,
      predictor,
      class,
      gpu,
      environment,
      ports,
      labels ? { },
    }:
    {
      User = "cog";
      WorkingDir = "/src";
      Entrypoint = [
        "/usr/bin/tini"
        "--"
      ];
      Cmd = [
        "python"
        "-m"
        (if predictor == "runner" then "runner.lifecycle" else "cli.builder_server")
      ];
      ExposedPorts = builtins.listToAttrs (
        map (port: {
          name = "${toString port}/tcp";
          value = { };
        }) ports
      );
      StopSignal = "SIGTERM";
      Env = {
        PATH = "/opt/cog-triton/runner/bin:/usr/local/bin:/usr/bin";
        HOME = "/home/cog";
        # Used when /etc/passwd does not have the container's user; PyTorch needs an answer.
        USER = "cog";
        LANG = "C.UTF-8";
        PORT = "5000";
        COG_PREDICT_TYPE_STUB = "${predictor}/run.py:${class}";
        COG_TRITON_HOME = "/opt/cog-triton";
        PYTHONPATH = "/src";
        PYTHONSAFEPATH = "1";
        PYTHONUNBUFFERED = "1";
        PYTHONDONTWRITEBYTECODE = "1";
      }
      // environment
      // (
        if gpu then
          {
            NVIDIA_VISIBLE_DEVICES = "all";
            NVIDIA_DRIVER_CAPABILITIES = "compute,utility";
          }
        else
          { }
      );
      Labels = {
        "org.opencontainers.image.title" = name;
        "org.opencontainers.image.description" = description;
        "org.opencontainers.image.version" = version;
        "org.opencontainers.image.source" = source;
        # Of our own part; `./result sbom` has those of everything.
        "org.opencontainers.image.licenses" = "Apache-2.0";
        "run.cog.version" = cog.version;
        "run.cog.has_init" = "true";
        "run.cog.config" = builtins.toJSON {
          build = {
            inherit gpu;
            python_version = runner.python;
          };
          predict = "${predictor}/run.py:${class}";
        };
        "run.cog.openapi_schema" = builtins.readFile (../. + "/${predictor}/.cog/openapi_schema.json");
      }
      // labels;
    };

  # `sm` is the GPU architecture that its engine layer is pruned for, if any; `more` are layers below that
  # one.
  mkRunner =
    {
      name,
      engine,
      gpu,
      sm ? null,
      more ? [ ],
    }:
    mkImage {
      inherit name;
      layers = [
        parts.base
        parts.python
        parts.runner
        parts.triton
        parts.bridge
      ]
      ++ more
      ++ [
        engine
        parts.shared
        parts.command-line
        (parts.application "runner")
      ];
      config = imageConfig {
        inherit name gpu;
        predictor = "runner";
        class = "Runner";
        environment = {
          WEIGHTS_CACHE = "/var/cache/cog-triton/weights";
          COMPILE_CACHE = "/var/cache/cog-triton/compiled";
          ENGINE_DIR = "/src/triton_model_repo/tensorrt_llm/1";
        }
        // (if sm == null then { } else { COG_TRITON_SM = toString sm; });
        labels = if sm == null then { } else { "cog-triton.sm" = toString sm; };
        ports = [ 5000 ]; # Triton's own are closed unless a setting opens them
      };
    };

  # NAME-80, NAME-86, ...; and NAME-full, which is pruned for none of them.
  perSM =
    prefix: sms: engine: more:
    builtins.listToAttrs (
      map (
        sm:
        let
          name = "${prefix}-${if sm == null then "full" else toString sm}";
        in
        {
          inherit name;
          value = mkRunner {
            inherit name sm more;
            engine = engine sm;
            gpu = true;
          };
        }
      ) (sms ++ [ null ])
    );
in
perSM "cog-triton-runner" sms.tensorrt-llm parts.engine-tensorrt-llm [ ]
// perSM "cog-triton-runner-vllm" sms.vllm (parts.engine-vllm "vllm") [ parts.compiler ]
// (
  if fetch.hasWheels "engine-vllm-next" then
    perSM "cog-triton-runner-vllm-next" sms.vllm (parts.engine-vllm "vllm-next") [ parts.compiler ]
  else
    { }
)
// {
  cog-triton-builder = mkImage rec {
    name = "cog-triton-builder";
    layers = [
      parts.base
      parts.python
      parts.runner
      parts.tokenizer-converter
      parts.engine-ctranslate2
      parts.engine-tensorrt-llm-build
      parts.shared
      parts.command-line
      (parts.application "builder")
    ];
    config = imageConfig {
      inherit name;
      predictor = "builder";
      class = "Builder";
      gpu = true;
      environment = {
        BUILDER_OUTPUT_DIR = "/src";
      };
      ports = [ 5000 ];
    };
  };

  cog-triton-runner-cpu = mkRunner {
    name = "cog-triton-runner-cpu";
    engine = parts.engine-ctranslate2;
    gpu = false;
  };
}
