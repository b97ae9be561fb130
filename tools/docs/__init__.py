"""Documents that are made from the code: pages of docs/, the schema of configs, the OpenAPI documents."""
