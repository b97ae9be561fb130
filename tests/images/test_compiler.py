"""The compiler of vLLM's runners: in a container with it and Python alone, whose root is read-only."""

import pytest

from tests.support.images import LIMITS, build_image, podman, run

NAME = "cog-triton-compiler"  # nix/checks.nix
# As OpenShift gives containers one: in no /etc/passwd, and in the group root.
ANY_USER = "--user=1000660000:0"
# What Triton's runtime/build.py does to launch a kernel: C against Python.h, linked to the driver's library.
SCRIPT = r"""
import ctypes, importlib.util, os, shutil, subprocess, sysconfig

assert [name for name in ("gcc", "clang", "cc", "nvcc") if shutil.which(name)] == []
compiler = "/opt/cog-triton/compiler/cc"
os.chdir("/tmp")
os.mkdir("lib")

def compile(source, output, *options):
    with open("source.c", "w") as file:
        file.write(source)
    fixed = ["-O3", "-shared", "-fPIC", "-Wno-psabi", "-o", output]
    subprocess.run([compiler, "source.c", *fixed, *options], check=True)

compile("int cuInit(unsigned flags) { return 100; }", "lib/libcuda.so.1", "-Wl,-soname,libcuda.so.1")
module = "launcher" + sysconfig.get_config_var("EXT_SUFFIX")
include = sysconfig.get_paths(scheme="posix_prefix")["include"]
compile('''
#include <Python.h>
#include <dlfcn.h>
#include <stdbool.h>
int cuInit(unsigned flags);
static PyObject *launch(PyObject *self, PyObject *args) { return PyLong_FromLong(cuInit(0)); }
static PyMethodDef methods[] = {{"launch", launch, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "launcher", NULL, -1, methods};
PyMODINIT_FUNC PyInit_launcher(void) { return PyModule_Create(&definition); }
''', module, "-l:libcuda.so.1", "-L/tmp/lib", f"-I{include}")
ctypes.CDLL("/tmp/lib/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
spec = importlib.util.spec_from_file_location("launcher", f"/tmp/{module}")
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)
print(launcher.launch())
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    result = build_image(
        f"checks.x86_64-linux.{NAME.rpartition('-')[2]}", tmp_path_factory.mktemp("image") / "r"
    )
    run(result, "load")
    return NAME


@pytest.mark.parametrize("user", [[], [ANY_USER]], ids=["cog", "any"])
def test_what_launches_kernels_is_compiled_with_a_read_only_root(image, user):
    options = ["--read-only", "--tmpfs=/tmp:exec", "--env=ZIG_GLOBAL_CACHE_DIR=/tmp/zig", *user, *LIMITS]
    assert podman("run", "--rm", *options, image, "python3", "-c", SCRIPT).stdout == "100\n"
