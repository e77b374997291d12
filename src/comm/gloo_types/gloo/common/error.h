#pragma once

/// Errors of Gloo: none that a header names.
