#pragma once

namespace slime::loop {

/// Memory of this process that is in RAM now (RSS), in bytes; 0 where the system does not say.
double resident_bytes();

}  // namespace slime::loop
