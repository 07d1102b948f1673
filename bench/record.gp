# record.gp - plots of bench/record.sh: gnuplot -e "dir='build/bench'" bench/record.gp
set terminal svg size 720,400 font "sans-serif,12" background rgb "white"
set grid ytics lc rgb "#dddddd"
set key outside top center horizontal
set yrange [0:*]

set output dir."/start.svg"
set title "Start of a recording"
set xlabel "run"
set ylabel "ms"
plot dir."/start.tsv" using 1:2 with linespoints pt 7 lc rgb "#c0392b" title "to the first sample", \
     dir."/start.tsv" using 1:3 with linespoints pt 5 lc rgb "#2c3e50" title "whole recording of 1 ms"

set output dir."/switch.svg"
set title "A context switch with and without the agent"
set xlabel "pair"
set ylabel "ns"
plot dir."/switch.tsv" using 1:2 with linespoints pt 5 lc rgb "#2c3e50" title "without", \
     dir."/switch.tsv" using 1:3 with linespoints pt 7 lc rgb "#c0392b" title "with"

set output dir."/bpf.svg"
set title "BPF time of one run, by the kernel's statistics"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.8
set xlabel "frequency"
set ylabel "ns"
plot dir."/bpf.tsv" using 2:xtic(1) lc rgb "#c0392b" title "sample", \
     dir."/bpf.tsv" using 3 lc rgb "#2c3e50" title "switch"
