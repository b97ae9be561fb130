# The images: which layers, and what runs in them.
{
  fetch,
  layers,
  mkImage,
}:
let
  version = builtins.head (builtins.match ".*VERSION = \"([^\"]+)\".*" (builtins.readFile ../shared/__init__.py));
  cog = builtins.head (builtins.filter (package: package.name == "cog") (fetch.wheels "runner").packages);
  python = (fetch.wheels "runner").python;
  description = "Turn a Hugging Face model into an engine, and serve it with NVIDIA Triton behind Cog";

  config =
    {
      name,
      predictor,
      class,
      gpu,
      environment,
      ports,
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
        "cog.server.http"
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
        "run.cog.version" = cog.version;
        "run.cog.has_init" = "true";
        "run.cog.config" = builtins.toJSON {
          build = {
            inherit gpu;
            python_version = python;
          };
          predict = "${predictor}/run.py:${class}";
        };
        "run.cog.openapi_schema" = builtins.readFile (../. + "/${predictor}/.cog/openapi_schema.json");
      };
    };

  mkRunner =
    {
      name,
      engine,
      gpu,
    }:
    mkImage {
      inherit name;
      layers = [
        layers.base
        layers.python
        layers.runner
        layers.triton
        layers.bridge
        engine
        (layers.application "runner")
      ];
      config = config {
        inherit name gpu;
        predictor = "runner";
        class = "Runner";
        environment = {
          COG_MAX_CONCURRENCY = "80";
          WEIGHTS_CACHE = "/var/cache/cog-triton/weights";
          ENGINE_DIR = "/src/triton_model_repo/tensorrt_llm/1";
        };
        ports = [
          5000
          8000
        ];
      };
    };
in
{
  cog-triton-runner-cpu = mkRunner {
    name = "cog-triton-runner-cpu";
    engine = layers.engine-ctranslate2;
    gpu = false;
  };
}
