# An image from layers and a config; and a model's image from a runner's.
{
  pkgs,
  tools,
  revision,
}:
let
  created = "1970-01-01T00:00:01Z";

  mkImage =
    {
      name,
      layers,
      config,
      base ? null,
    }:
    let
      result = tools.run {
        inherit name spec;
        module = "image";
        arguments = tools.library;
      };
      spec = {
        inherit name created;
        # The image that this one was made from, if any.
        base = if base == null then null else base.spec;
        layers = map toString layers;
        config = config // {
          # "NAME=value", as in OCI
          Env = map (key: "${key}=${config.Env.${key}}") (builtins.attrNames config.Env);
          Labels =
            config.Labels
            // {
              "org.opencontainers.image.created" = created;
            }
            // (if revision == null then { } else { "org.opencontainers.image.revision" = revision; });
        };
        python = "${tools.python}/bin/python3";
        skopeo = "${pkgs.skopeo}/bin/skopeo";
      };
    in
    result // { inherit layers config spec; };
in
{
  inherit mkImage;

  # The runner's layers with another config: `mkModel { runner = ...; env.COG_WEIGHTS = "https://..."; }`.
  mkModel =
    {
      runner,
      name ? "${runner.name}-model",
      env ? { },
      labels ? { },
    }:
    mkImage {
      inherit name;
      inherit (runner) layers;
      base = runner;
      config = runner.config // {
        Env = runner.config.Env // builtins.mapAttrs (_: toString) env;
        Labels = runner.config.Labels // labels;
      };
    };
}
