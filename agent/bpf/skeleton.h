/*
 * The generated skeleton of bpf/collect.bpf.c. The analyzer cannot see into libbpf and takes its
 * generated error path for a leak, so it is told what the destructor does.
 */
#ifndef AGENT_BPF_SKELETON_H
#define AGENT_BPF_SKELETON_H

#include <bpf/libbpf.h>
#include <stdlib.h>

#ifdef __clang_analyzer__
#define bpf_object__destroy_skeleton free
#endif
#include "agent/bpf/collect.skel.h"

#endif
