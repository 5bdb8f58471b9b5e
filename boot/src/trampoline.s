# From a start-up message in real mode to Rust in the high half; see cpu.rs.
# Copied to a page below 1 MiB; the words at the end are filled in there.

    .section .rodata.boot_trampoline, "a", @progbits
    .balign 16
    .globl boot_trampoline, boot_trampoline_end
    .globl boot_trampoline_gdt, boot_trampoline_gdt_base
    .globl boot_trampoline_long, boot_trampoline_far
    .globl boot_trampoline_tables, boot_trampoline_args
    .code16
boot_trampoline:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    lgdtl boot_trampoline_gdt_pointer - boot_trampoline
    movl $0x20, %eax                # PAE
    movl %eax, %cr4
    movl boot_trampoline_tables - boot_trampoline, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx          # EFER: long mode and no-execute
    rdmsr
    orl $0x900, %eax
    wrmsr
    movl $0x80010033, %eax          # paging, write-protect, native FPU errors, protection
    movl %eax, %cr0
    ljmpl *(boot_trampoline_far - boot_trampoline)

    .code64
boot_trampoline_long:
    # Am I the CPU that is being started?
    xorl %eax, %eax
    cpuid
    cmpl $0xb, %eax
    jb 1f
    movl $0xb, %eax
    xorl %ecx, %ecx
    cpuid
    testl %ebx, %ebx
    jnz 2f
1:  movl $1, %eax
    cpuid
    shrl $24, %ebx
    movl %ebx, %edx
2:  movq boot_trampoline_args(%rip), %rdi
    cmpl {apic_id}(%rdi), %edx
    jne 3f
    # Is the ticket still good? From here on the start is waited for.
    movl ${waiting}, %eax
    movl ${claimed}, %ecx
    lock cmpxchgl %ecx, {state}(%rdi)
    jne 3f
    movabsq ${enter}, %rax
    jmpq *%rax
3:  cli
    hlt
    jmp 3b

    .balign 8
boot_trampoline_gdt:
    .quad 0
    .quad 0x00af9b000000ffff        # 0x08: 64-bit code, accessed
    .quad 0x00cf93000000ffff        # 0x10: data, accessed
boot_trampoline_gdt_pointer:
    .word 23
boot_trampoline_gdt_base:
    .long 0                         # physical address of the table above
boot_trampoline_far:
    .long 0                         # physical address of boot_trampoline_long
    .word 0x08
    .balign 8
boot_trampoline_tables:
    .quad 0                         # page tables that map this page, below 4 GiB
boot_trampoline_args:
    .quad 0                         # the start's words, in the high half
boot_trampoline_end:
    .text
