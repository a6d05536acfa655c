"""Descriptor pool of the protocol; other packages use the default pool."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
