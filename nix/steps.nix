# How a layer is put together: the steps of nix/oci/steps.py, and what turns them into layers.
{
  fetch,
  sources,
  tools,
}:
rec {
  mkLayer =
    {
      name,
      steps,
      packages ? [ ],
      attributes ? { },
      own ? null,
    }:
    let
      unknown = builtins.filter (package: (package.sha256 or null) == "") packages;
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
          inherit
            name
            steps
            attributes
            own
            ;
          packages = map (package: package // { path = "${package.path}"; }) packages;
        };
      };

  paths = map (package: "${package.path}");

  # An environment of its own for the wheels of a lock, on Debian's Python or another `interpreter`. Its modules get
  # bytecode, and so do those of `libraries`, except for what is in `seldom` (paths in site-packages).
  environment =
    {
      name,
      place,
      interpreter ? python: "/usr/bin/python${python}",
      libraries ? [ ],
      seldom ? [ ],
    }:
    let
      wheels = fetch.wheels name;
    in
    {
      inherit place;
      inherit (wheels) packages python;
      bytecode =
        let
          site = "${place}/lib/python${wheels.python}/site-packages";
        in
        bytecode (builtins.substring 1 (-1) (interpreter wheels.python)) wheels.python {
          places = [ site ] ++ libraries;
          seldom = map (path: "${site}/${path}") seldom;
        };
      steps = [
        {
          do = "environment";
          inherit place;
          interpreter = interpreter wheels.python;
          version = wheels.python;
          wheels = paths wheels.packages;
          left_out = wheels.leftOut;
        }
      ];
    };

  environmentLayer =
    wanted:
    let
      made = environment wanted;
    in
    mkLayer {
      inherit (wanted) name;
      inherit (made) packages;
      steps = made.steps ++ [ made.bytecode ];
    };

  # Bytecode for the modules below `places`, except below `seldom`, as the image's own Python compiles it.
  bytecode =
    interpreter: version:
    {
      places,
      seldom ? [ ],
    }:
    {
      do = "bytecode";
      inherit
        interpreter
        version
        places
        seldom
        ;
      packages = paths (
        builtins.filter (
          package:
          builtins.elem package.name [
            "libc6"
            "libexpat1"
            "libpython${debianPython}-minimal"
            "python${debianPython}-minimal"
            "zlib1g"
          ]
        ) (fetch.debian "base" ++ fetch.debian "python")
      );
    };

  debianPython = (fetch.wheels "runner").python;

  # What Python's find_library finds: the libraries of some sets of Debian packages.
  loaderCache = sets: {
    do = "loader_cache";
    packages = paths (builtins.concatMap fetch.debian sets);
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

  prune = options: environment: {
    do = "prune";
    program = "${sources.prune}";
    inherit options;
    inherit (environment) place;
    version = environment.python;
  };

  # The layer of an engine: pruned for one GPU architecture, or as published when `sm` is null.
  mkEngineLayer =
    engine: sm: environment:
    mkLayer {
      name = "engine-${engine}-${if sm == null then "full" else toString sm}";
      inherit (environment) packages;
      steps =
        environment.steps
        ++ (
          if sm == null then
            [ ]
          else
            [
              (prune [
                "--sm"
                (toString sm)
                "--cut"
              ] environment)
            ]
        )
        ++ [ environment.bytecode ];
    };
}
