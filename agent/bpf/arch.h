/* The architecture that the unwinder is for: the target of the kernel programs, x86-64 in host tests unless told. */
#ifndef AGENT_BPF_ARCH_H
#define AGENT_BPF_ARCH_H

#ifdef __TARGET_ARCH_arm64
#include "agent/bpf/arch_arm64.h"
#else
#include "agent/bpf/arch_x86.h"
#endif

#endif
