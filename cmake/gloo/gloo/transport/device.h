#pragma once

// See ../../README.md.

namespace gloo::transport {

class Device;

}  // namespace gloo::transport
