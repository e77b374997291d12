#pragma once

/// Exception that ends a step early, because the run was told to stop. No error: the caller of the loop
/// catches it, and what was trained is saved.

namespace slime::loop {

struct StepAbandoned {};

}  // namespace slime::loop
