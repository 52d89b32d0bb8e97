"""Find out where the time goes when PyTorch runs on AWS Trainium."""

from __future__ import annotations
