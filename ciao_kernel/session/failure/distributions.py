"""The names under which pip knows imported modules: ``sklearn`` is in scikit-learn."""

from __future__ import annotations

import difflib
import functools
import sys
from importlib import metadata

_NAMES = {
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "community": "python-louvain",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "lightning_fabric": "lightning",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "MySQLdb": "mysqlclient",
    "nacl": "PyNaCl",
    "OpenSSL": "pyOpenSSL",
    "orbax": "orbax-checkpoint",
    "osgeo": "GDAL",
    "PIL": "pillow",
    "psycopg2": "psycopg2-binary",
    "pytorch_lightning": "pytorch-lightning",
    "ruamel": "ruamel.yaml",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "tensorflow_addons": "tensorflow-addons",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "tensorflow_text": "tensorflow-text",
    "torch_geometric": "torch-geometric",
    "umap": "umap-learn",
    "usb": "pyusb",
    "win32api": "pywin32",
    "Xlib": "python-xlib",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
"""Well-known modules whose distribution has another name, as their pages on pypi.org give it."""
_SHARED = frozenset({"azure", "google", "jaraco", "nvidia", "ruamel", "zope"})
"""Namespaces of several distributions, of which this Python may have only one."""
# fmt: off
_SAME = frozenset((
    "accelerate", "boto3", "catboost", "dask", "datasets", "deepspeed", "diffusers", "einops",
    "evaluate", "fastai", "flax", "fsspec", "gensim", "gym", "gymnasium", "h5py", "horovod",
    "huggingface_hub", "jax", "joblib", "keras", "keras_cv", "keras_nlp", "librosa",
    "lightgbm", "lightning", "matplotlib", "mlflow", "networkx", "nltk", "numba", "numpy",
    "omegaconf", "onnx", "onnxruntime", "optax", "optuna", "pandas", "peft", "plotly",
    "polars", "pyarrow", "pydantic", "ray", "requests", "s3fs", "safetensors", "scipy",
    "seaborn", "sentencepiece", "spacy", "statsmodels", "sympy", "tensorboard", "tensorboardX",
    "tensorflow", "tf_keras", "tiktoken", "timm", "tokenizers", "torch", "torchaudio",
    "torchmetrics", "torchvision", "tqdm", "transformers", "trl", "wandb", "webdataset",
    "xarray", "xgboost",
))
# fmt: on
"""Well-known modules whose distribution has the same name, apart from ``_`` and ``-``."""


def distribution(module: str) -> str | None:
    """Return the distribution that provides a module, None if it is not known.

    Args:
        module: The full name in the error, such as ``google.cloud.storage``.
    """
    name = module
    while name:
        if name in _NAMES:
            return _NAMES[name]
        name = name.rpartition(".")[0]
    top = module.split(".")[0]
    installed = _installed().get(top, ())
    if len(installed) == 1 and top not in _SHARED:
        return installed[0]
    return top.replace("_", "-") if top in _SAME else None


def similar(module: str) -> str:
    """Return a known module whose name is nearly this one, "" if there is none.

    A mistyped name may be the name of somebody's package, which nobody should install.
    """
    known = {*_NAMES, *_SAME, *_installed(), *sys.stdlib_module_names}
    public = sorted(name for name in known if not name.startswith("_") and "." not in name)
    return "".join(difflib.get_close_matches(module, public, n=1, cutoff=0.8))


@functools.cache
def _installed() -> dict[str, tuple[str, ...]]:
    """Return the distributions of the modules of this Python, which replicas may lack."""
    return {name: tuple(set(found)) for name, found in metadata.packages_distributions().items()}
