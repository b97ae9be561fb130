# The parts of this repository that images are made of, each without what would rebuild it needlessly.
let
  root = ../.;
  prefix = builtins.stringLength (toString root) + 1;

  # The files whose path matches one pattern, in folders whose path matches another.
  select =
    name: folders: files:
    builtins.path {
      inherit name;
      path = root;
      filter =
        path: type:
        let
          relative = builtins.substring prefix (-1) path;
          pattern = if type == "directory" then folders else files;
        in
        builtins.match pattern relative != null && builtins.match ".*__pycache__" relative == null;
    };
in
{
  # The programs that make layers, and all programs: a new verb does not rebuild layers.
  layerPrograms =
    select "layer-programs" "nix|nix/oci"
      "nix/oci/(__init__|compile_modules|compress|debian|facts|layer|licences|native|problem|steps|tar|tree|wheel)[.]py"
    + "/nix";
  programs =
    select "programs" "nix|nix/oci|nix/vex" "nix/oci/[^/]+[.]py|nix/vex/[^/]+[.]json" + "/nix";
  prune = select "prune" "nix|nix/prune" "nix/prune/[^/]+[.]py" + "/nix";
  files = select "files" "nix|nix/image(/.*)?" "nix/image/.*" + "/nix/image";

  application = select "application" "runner(/.*)?" (
    builtins.concatStringsSep "|" [
      "runner/.*[.]py"
      "runner/[.]cog/openapi_schema[.]json"
      "runner/front/page/static/[^/]+[.](html|css|js|svg)"
    ]
  );

  shared = select "shared" "shared(/.*)?" "shared/.*[.]py|shared/vllm_arguments[.]json";

  commandLine = select "command-line" "(builder|cli)(/.*)?" (
    builtins.concatStringsSep "|" [
      "(builder|cli)/.*[.]py"
      "builder/[.]cog/openapi_schema[.]json"
      "builder/engines/tensorrt_llm/arguments/[^/]+[.]json"
    ]
  );

  # Configs, as people pass them to the builder.
  examples = select "examples" "examples(/.*)?" "examples/.*[.]yaml" + "/examples";

  # What the compiler reads; constants.h has what comes from Python modules.
  bridge = select "bridge" "runner|runner/bridge" (
    builtins.concatStringsSep "|" [
      "runner/bridge/[^/]+[.](c|h)"
      "runner/bridge/(__init__|build)[.]py"
      "runner/__init__[.]py"
    ]
  );
}
