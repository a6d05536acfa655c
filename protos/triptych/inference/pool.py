"""Where the protocol's descriptors are; other packages' are in the default pool."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
